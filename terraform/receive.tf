# The receive function: its account, what that may do, the function, and who may call it.

resource "google_service_account" "receive" {
  project      = var.project_id
  account_id   = "${var.name}-receive"
  display_name = "${var.name}: the receive function"
  depends_on   = [google_project_service.api]
}

resource "google_spanner_database_iam_member" "receive" {
  project  = local.database.project
  instance = local.database.instance
  database = local.database.name
  role     = "roles/spanner.databaseUser"
  member   = "serviceAccount:${google_service_account.receive.email}"

  depends_on = [module.database]
}

# Put, compare, and replace by a new generation, which is a deletion too. No predefined role says just that.
resource "google_project_iam_custom_role" "receive_payloads" {
  project     = var.project_id
  role_id     = "${replace(var.name, "-", "_")}_receive_payloads"
  title       = "${var.name}: keep payloads"
  permissions = ["storage.objects.create", "storage.objects.get", "storage.objects.delete"]
}

resource "google_storage_bucket_iam_member" "receive" {
  bucket = google_storage_bucket.payloads.name
  role   = google_project_iam_custom_role.receive_payloads.id
  member = "serviceAccount:${google_service_account.receive.email}"
}

resource "google_project_iam_member" "receive_telemetry" {
  for_each = toset(["roles/telemetry.metricsWriter", "roles/telemetry.tracesWriter"])

  project = var.project_id
  role    = each.value
  member  = "serviceAccount:${google_service_account.receive.email}"
}

module "receive" {
  source = "./modules/function"

  project_id      = var.project_id
  region          = var.region
  name            = local.receive_name
  description     = "Stores what Pub/Sub pushes, and answers 2xx only after the commit"
  entry_point     = "Receive"
  url             = local.receive_url
  runtime         = var.runtime
  labels          = local.labels
  source_bucket   = google_storage_bucket.source.name
  source_object   = google_storage_bucket_object.source.name
  build           = local.build
  kms_key         = var.kms_key
  service_account = google_service_account.receive.email
  max_instances   = var.receive.max_instances
  min_instances   = var.receive.min_instances
  concurrency     = var.receive.concurrency
  memory_mib      = var.receive.memory_mib
  cpu             = var.receive.cpu
  timeout_seconds = var.receive.timeout_seconds
  ingress         = var.receive.ingress
  vpc             = var.receive.vpc
  config          = local.mounted_config
  environment = merge({
    # An instance over its memory is killed: Go collects before, where it would let its heap double otherwise.
    GOMEMLIMIT = "${floor(var.receive.memory_mib * 0.85)}MiB"
    }, local.environment, {
    PUSH_AUDIENCE         = local.receive_url
    PUSH_SERVICE_ACCOUNTS = google_service_account.push.email
  })

  depends_on = [
    google_project_iam_member.build, google_artifact_registry_repository_iam_member.build,
    google_secret_manager_secret_iam_member.config, google_storage_bucket_iam_member.build,
  ]
}

# Who pushes. It may call this function, and nothing else anywhere.
resource "google_service_account" "push" {
  project      = var.project_id
  account_id   = "${var.name}-push"
  display_name = "${var.name}: pushes to the receive function"
  depends_on   = [google_project_service.api]
}

# On the Cloud Run service: the function's own IAM resource does not take this role.
resource "google_cloud_run_v2_service_iam_member" "push" {
  project  = var.project_id
  location = var.region
  name     = module.receive.service
  role     = "roles/run.invoker"
  member   = "serviceAccount:${google_service_account.push.email}"
}

resource "google_service_account_iam_member" "push_tokens" {
  count = var.pubsub_agent_token_creator ? 1 : 0

  service_account_id = google_service_account.push.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = local.pubsub_agent
}
