# The relay function: its account, what that may do, the function, who may call it, and when.

resource "google_service_account" "relay" {
  project      = var.project_id
  account_id   = "${var.name}-relay"
  display_name = "${var.name}: the relay function"
  depends_on   = [google_project_service.api]
}

resource "google_spanner_database_iam_member" "relay" {
  project  = local.database.project
  instance = local.database.instance
  database = local.database.name
  role     = "roles/spanner.databaseUser"
  member   = "serviceAccount:${google_service_account.relay.email}"

  depends_on = [module.database]
}

# Read, and set the custom time by which the bucket deletes. Without storage.objects.list Cloud Storage answers 403 for an
# object that is not there, which would be taken for a missing permission and retried for ever.
resource "google_project_iam_custom_role" "relay_payloads" {
  project     = var.project_id
  role_id     = "${replace(var.name, "-", "_")}_relay_payloads"
  title       = "${var.name}: read payloads and say when they may go"
  permissions = ["storage.objects.get", "storage.objects.list", "storage.objects.update"]
}

resource "google_storage_bucket_iam_member" "relay" {
  bucket = google_storage_bucket.payloads.name
  role   = google_project_iam_custom_role.relay_payloads.id
  member = "serviceAccount:${google_service_account.relay.email}"
}

# The senders' buckets that the configuration lists: get and, for the same reason, list.
resource "google_storage_bucket_iam_member" "relay_claims" {
  for_each = local.claim_hosts

  bucket = each.value
  role   = "roles/storage.objectViewer"
  member = "serviceAccount:${google_service_account.relay.email}"
}

resource "google_project_iam_member" "relay_telemetry" {
  for_each = toset(["roles/telemetry.metricsWriter", "roles/telemetry.tracesWriter"])

  project = var.project_id
  role    = each.value
  member  = "serviceAccount:${google_service_account.relay.email}"
}

module "relay" {
  source = "./modules/function"

  project_id      = var.project_id
  region          = var.region
  name            = local.relay_name
  description     = "Takes stored messages, in key order, to their engines"
  entry_point     = "Relay"
  url             = local.relay_url
  runtime         = var.runtime
  labels          = local.labels
  source_bucket   = google_storage_bucket.source.name
  source_object   = google_storage_bucket_object.source.name
  build           = local.build
  kms_key         = var.kms_key
  service_account = google_service_account.relay.email
  max_instances   = var.relay.max_instances
  min_instances   = var.relay.min_instances
  # A run fills an instance: its calls and their payloads are what relay.parallel of the configuration bounds.
  concurrency     = 1
  memory_mib      = var.relay.memory_mib
  cpu             = var.relay.cpu
  timeout_seconds = var.relay.timeout_seconds
  ingress         = var.relay.ingress
  vpc             = var.relay.vpc
  config          = local.mounted_config
  secrets         = var.engine_secrets
  environment = merge({
    # An instance over its memory is killed: Go collects before, where it would let its heap double otherwise.
    GOMEMLIMIT = "${floor(var.relay.memory_mib * 0.85)}MiB"
    }, local.environment, {
    RELAY_AUDIENCE         = local.relay_url
    RELAY_SERVICE_ACCOUNTS = google_service_account.scheduler.email
  })

  depends_on = [
    google_project_iam_member.build, google_artifact_registry_repository_iam_member.build,
    google_secret_manager_secret_iam_member.config, google_secret_manager_secret_iam_member.engine,
    google_storage_bucket_iam_member.build,
  ]
}

# Who starts runs. It may call this function, and nothing else anywhere.
resource "google_service_account" "scheduler" {
  project      = var.project_id
  account_id   = "${var.name}-scheduler"
  display_name = "${var.name}: starts the relay's runs"
  depends_on   = [google_project_service.api]
}

resource "google_cloud_run_v2_service_iam_member" "scheduler" {
  project  = var.project_id
  location = var.region
  name     = module.relay.service
  role     = "roles/run.invoker"
  member   = "serviceAccount:${google_service_account.scheduler.email}"
}

resource "google_cloud_scheduler_job" "relay" {
  count = var.relay.jobs

  project          = var.project_id
  region           = var.region
  name             = "${var.name}-relay-${count.index + 1}"
  description      = "A run of the relay; runs share the work"
  schedule         = var.relay.schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = "${var.relay.attempt_deadline_seconds}s"

  # All of it is written out, because what is left out is not applied at first. One retry bridges a short fault; more
  # would only overlap with the next minute's run.
  retry_config {
    retry_count          = 1
    min_backoff_duration = "5s"
    max_backoff_duration = "10s"
    max_doublings        = 1
    max_retry_duration   = "0s"
  }

  http_target {
    http_method = "POST"
    uri         = "${local.relay_url}/"
    oidc_token {
      service_account_email = google_service_account.scheduler.email
      # Without it the whole URI would be the audience.
      audience = local.relay_url
    }
  }

  depends_on = [google_cloud_run_v2_service_iam_member.scheduler]

  lifecycle {
    precondition {
      # 10 s to settle what the last call brought.
      condition     = var.relay.attempt_deadline_seconds >= local.seconds["budget"] + local.longest_timeout + 10
      error_message = "relay.attempt_deadline_seconds (${var.relay.attempt_deadline_seconds}) must be at least relay.budget (${local.durations["budget"]}) plus the longest engine timeout (${local.longest_timeout} s) plus 10 s to settle, or the scheduler gives up a run that still works."
    }
    precondition {
      condition     = var.relay.timeout_seconds > var.relay.attempt_deadline_seconds
      error_message = "relay.timeout_seconds (${var.relay.timeout_seconds}) must be above relay.attempt_deadline_seconds (${var.relay.attempt_deadline_seconds}), so that Cloud Run never cuts a run off while it settles."
    }
  }
}
