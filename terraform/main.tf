data "google_project" "this" {
  project_id = var.project_id
}

resource "google_project_service" "api" {
  for_each = var.enable_apis ? toset([
    "artifactregistry.googleapis.com",
    "cloudbuild.googleapis.com",
    "cloudfunctions.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudscheduler.googleapis.com",
    "iam.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "pubsub.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "spanner.googleapis.com",
    "storage.googleapis.com",
    "telemetry.googleapis.com",
  ]) : toset([])

  project            = var.project_id
  service            = each.value
  disable_on_destroy = false
}

locals {
  project_number = data.google_project.this.number
  labels         = merge({ app = "pubsub-inbox", inbox = var.name }, var.labels)

  # Made of the number, not read: the data source for service agents is not in the provider's stable version.
  pubsub_agent = "serviceAccount:service-${local.project_number}@gcp-sa-pubsub.iam.gserviceaccount.com"

  # A function must know the audience of its callers' tokens before it has a URL. Cloud Run's deterministic URL is known
  # before, and is an audience that its IAM check takes. receive.tf and relay.tf check that the service answers under it.
  receive_name = "${var.name}-receive"
  relay_name   = "${var.name}-relay"
  receive_url  = "https://${local.receive_name}-${local.project_number}.${var.region}.run.app"
  relay_url    = "https://${local.relay_name}-${local.project_number}.${var.region}.run.app"

  # What the configuration says, with the defaults of docs/configuration.md.
  config      = yamldecode(var.config)
  consumer    = tostring(local.config.consumer)
  engines     = local.config.engines
  claim_hosts = toset(try(local.config.claimCheck.buckets, []))
  durations = merge({
    budget            = try(local.config.relay.budget, "50s")
    lease             = try(local.config.relay.lease, "90s")
    processed         = try(local.config.retention.processed, "75d")
    payload           = try(local.config.retention.payload, "14d")
    back_subscription = try(local.config.retention.waysBack.subscription, "31d")
    back_dead_letter  = try(local.config.retention.waysBack.deadLetter, "31d")
    back_replay       = try(local.config.retention.waysBack.replay, "7d")
    }, {
    for name, engine in local.engines : "engine ${name}" => try(engine.timeout, "10s")
  })
  units = { d = 86400, h = 3600, m = 60, s = 1, ms = 0.001, us = 0.000001, ns = 0.000000001 }
  # -1 where the text is no duration; google_secret_manager_secret_version.config says so.
  seconds = {
    for name, text in local.durations : name => try(sum([
      for part in regexall("([0-9]+(?:\\.[0-9]+)?)(d|h|ms|m|us|ns|s)", regex("^(?:[0-9]+(?:\\.[0-9]+)?(?:d|h|ms|m|us|ns|s))+$", text)) :
      tonumber(part[0]) * local.units[part[1]]
    ]), -1)
  }
  longest_timeout = max([for name, s in local.seconds : s if startswith(name, "engine ")]...)
  secret_names = toset(compact(flatten([
    for engine in values(local.engines) : [try(engine.auth.passwordEnv, ""), try(engine.auth.tokenEnv, "")]
  ])))
}
