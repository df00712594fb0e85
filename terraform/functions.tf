# What both functions share: their source, the account that builds them, and most of their environment.

locals {
  environment = merge({
    # Metrics and traces go nowhere unless somebody says where.
    OTEL_EXPORTER_OTLP_ENDPOINT = "https://telemetry.googleapis.com"
    }, var.environment, {
    INBOX_CONFIG_FILE    = "${local.mounted_config.directory}/${local.mounted_config.file}"
    SPANNER_DATABASE     = "projects/${local.database.project}/instances/${local.database.instance}/databases/${local.database.name}"
    PAYLOAD_BUCKET       = google_storage_bucket.payloads.name
    AUTH_MODE            = "edge"
    GOOGLE_CLOUD_PROJECT = var.project_id
  })
  mounted_config = {
    directory = "/etc/inbox"
    file      = "inbox.yaml"
    secret    = google_secret_manager_secret.config.secret_id
    version   = google_secret_manager_secret_version.config.version
  }
  build = {
    service_account = var.build.service_account == null ? "projects/${var.project_id}/serviceAccounts/${google_service_account.build[0].email}" : "projects/${var.project_id}/serviceAccounts/${var.build.service_account}"
    repository      = var.build.repository == null ? "projects/${var.project_id}/locations/${var.region}/repositories/${google_artifact_registry_repository.images[0].repository_id}" : var.build.repository
  }
}

resource "google_storage_bucket" "source" {
  project                     = var.project_id
  name                        = "${var.project_id}-${var.name}-source"
  location                    = var.region
  labels                      = local.labels
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true

  dynamic "encryption" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      default_kms_key_name = encryption.value
    }
  }

  depends_on = [google_project_service.api]
}

# The hash in the name: another archive is another object, and the functions are built anew exactly then.
resource "google_storage_bucket_object" "source" {
  bucket = google_storage_bucket.source.name
  name   = "source-${filesha256(var.source_archive)}.zip"
  source = var.source_archive

  lifecycle {
    create_before_destroy = true
  }
}

# Projects differ in what their default build account may do; this one may do what a build needs.
resource "google_service_account" "build" {
  count = var.build.service_account == null ? 1 : 0

  project      = var.project_id
  account_id   = "${var.name}-build"
  display_name = "${var.name}: builds the functions"
  depends_on   = [google_project_service.api]
}

resource "google_artifact_registry_repository" "images" {
  count = var.build.repository == null ? 1 : 0

  project       = var.project_id
  location      = var.region
  repository_id = "${var.name}-functions"
  description   = "Images of the functions of ${var.name}"
  format        = "DOCKER"
  labels        = local.labels
  kms_key_name  = var.kms_key
  depends_on    = [google_project_service.api]
}

resource "google_artifact_registry_repository_iam_member" "build" {
  count = var.build.service_account == null ? 1 : 0

  project    = split("/", local.build.repository)[1]
  location   = split("/", local.build.repository)[3]
  repository = split("/", local.build.repository)[5]
  role       = "roles/artifactregistry.writer"
  member     = "serviceAccount:${google_service_account.build[0].email}"
}

resource "google_storage_bucket_iam_member" "build" {
  count = var.build.service_account == null ? 1 : 0

  bucket = google_storage_bucket.source.name
  role   = "roles/storage.objectViewer"
  member = "serviceAccount:${google_service_account.build[0].email}"
}

resource "google_project_iam_member" "build" {
  for_each = var.build.service_account == null ? {
    logs = { role = "roles/logging.logWriter", only = null }
    # The service copies the source into a bucket of its own, made with a project's first function, and builds from there.
    copy = { role = "roles/storage.objectViewer", only = "resource.name.startsWith(\"projects/_/buckets/gcf-v2-sources-${local.project_number}-\")" }
  } : {}

  project = var.project_id
  role    = each.value.role
  member  = "serviceAccount:${google_service_account.build[0].email}"

  dynamic "condition" {
    for_each = each.value.only == null ? [] : [each.value.only]
    content {
      title      = "function sources only"
      expression = condition.value
    }
  }
}
