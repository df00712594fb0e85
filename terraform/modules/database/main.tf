terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.45, < 9.0"
    }
  }
}

resource "google_spanner_instance" "this" {
  count = var.instance == null ? 1 : 0

  project          = var.project_id
  name             = var.name
  display_name     = var.name
  config           = var.config
  edition          = var.edition
  labels           = var.labels
  processing_units = var.autoscaling == null ? var.processing_units : null
  # It deletes backups too.
  force_destroy = var.ephemeral
  # Spanner's own schedule would come on top of ours.
  default_backup_schedule_type = "NONE"

  dynamic "autoscaling_config" {
    for_each = var.autoscaling == null ? [] : [var.autoscaling]
    content {
      autoscaling_limits {
        min_processing_units = autoscaling_config.value.min_processing_units
        max_processing_units = autoscaling_config.value.max_processing_units
      }
      autoscaling_targets {
        high_priority_cpu_utilization_percent = autoscaling_config.value.cpu_percent
        storage_utilization_percent           = 90
      }
    }
  }
}

resource "google_spanner_database" "this" {
  project                  = var.project_id
  instance                 = var.instance == null ? google_spanner_instance.this[0].name : var.instance
  name                     = var.name
  version_retention_period = var.version_retention
  # The default is America/Los_Angeles.
  default_time_zone = "UTC"
  # The first keeps Terraform from deleting it, the second everybody, its instance's deletion too.
  deletion_protection    = !var.ephemeral
  enable_drop_protection = !var.ephemeral

  dynamic "encryption_config" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      kms_key_name = encryption_config.value
    }
  }

  # The tables are `inboxctl migrate`'s. Terraform plans a new database for a changed statement.
  lifecycle {
    ignore_changes = [ddl]
  }
}

resource "google_spanner_backup_schedule" "this" {
  project            = var.project_id
  instance           = google_spanner_database.this.instance
  database           = google_spanner_database.this.name
  name               = "${var.name}-daily"
  retention_duration = "${var.backup_retention_days * 86400}s"

  spec {
    cron_spec {
      text = var.backup_schedule
    }
  }

  full_backup_spec {}
}
