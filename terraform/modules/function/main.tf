terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.45, < 9.0"
    }
  }
}

resource "google_cloudfunctions2_function" "this" {
  project      = var.project_id
  location     = var.region
  name         = var.name
  description  = var.description
  labels       = var.labels
  kms_key_name = var.kms_key

  build_config {
    runtime           = var.runtime
    entry_point       = var.entry_point
    service_account   = var.build.service_account
    docker_repository = var.build.repository
    source {
      storage_source {
        bucket = var.source_bucket
        object = var.source_object
      }
    }
  }

  service_config {
    service_account_email            = var.service_account
    min_instance_count               = var.min_instances
    max_instance_count               = var.max_instances
    max_instance_request_concurrency = var.concurrency
    available_memory                 = "${var.memory_mib}Mi"
    available_cpu                    = tostring(var.cpu)
    timeout_seconds                  = var.timeout_seconds
    ingress_settings                 = var.ingress
    all_traffic_on_latest_revision   = true
    environment_variables            = var.environment
    direct_vpc_egress                = var.vpc == null ? null : "VPC_EGRESS_${var.vpc.egress}"

    dynamic "direct_vpc_network_interface" {
      for_each = var.vpc == null ? [] : [var.vpc]
      content {
        network    = direct_vpc_network_interface.value.network
        subnetwork = direct_vpc_network_interface.value.subnetwork
      }
    }

    secret_volumes {
      mount_path = var.config.directory
      project_id = var.project_id
      secret     = var.config.secret
      versions {
        version = var.config.version
        path    = var.config.file
      }
    }

    dynamic "secret_environment_variables" {
      for_each = var.secrets
      content {
        key        = secret_environment_variables.key
        project_id = split("/", secret_environment_variables.value.secret)[1]
        secret     = split("/", secret_environment_variables.value.secret)[3]
        version    = secret_environment_variables.value.version
      }
    }
  }
}

data "google_cloud_run_v2_service" "this" {
  project  = var.project_id
  location = var.region
  name     = google_cloudfunctions2_function.this.name

  lifecycle {
    # Callers' tokens are made for this URL. Where the service does not have it, every call would be refused for ever.
    postcondition {
      condition     = contains(self.urls, var.url)
      error_message = "${var.name} does not answer under ${var.url} but under ${join(", ", self.urls)}: its name and the project's number may be longer than 63 characters together."
    }
  }
}
