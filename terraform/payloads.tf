resource "google_storage_bucket" "payloads" {
  project                     = var.project_id
  name                        = "${var.project_id}-${var.name}-payloads"
  location                    = var.region
  labels                      = local.labels
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = var.ephemeral

  # By custom time alone, which the relay sets on what is finished. By age, or by prefix, the payload of a message that is
  # open or parked would go.
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      days_since_custom_time = ceil(local.seconds["payload"] / 86400)
    }
  }

  # Written out, because the default is seven days, and a payload that has been deleted is still there so long.
  soft_delete_policy {
    retention_duration_seconds = var.payloads.soft_delete_days * 86400
  }

  dynamic "encryption" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      default_kms_key_name = encryption.value
    }
  }

  depends_on = [google_project_service.api]
}
