# Two consumers, each an instance of the module with functions, identities, subscriptions and alerts of its own, on one
# database: work orders go to Flowable and to a billing service, in a network of yours; shipments to a service elsewhere.
# Data is encrypted by a key of yours. Topics are there already.

terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.45, < 9.0"
    }
  }
}

provider "google" {
  project = var.project_id
  region  = var.region
}

module "kms" {
  source = "../../modules/kms_grants"

  project_id = var.project_id
  kms_key    = var.kms_key
}

module "database" {
  source = "../../modules/database"

  project_id            = var.project_id
  name                  = "inboxes"
  config                = "regional-${var.region}"
  edition               = "ENTERPRISE"
  autoscaling           = { min_processing_units = 1000, max_processing_units = 5000 }
  version_retention     = "2d"
  backup_retention_days = 90
  kms_key               = module.kms.kms_key
}

module "work_orders" {
  source = "../.."

  project_id     = var.project_id
  region         = var.region
  name           = "work-orders"
  source_archive = var.source_archive
  config         = file("${path.module}/work-orders.yaml")
  database       = module.database.database
  kms_key        = module.kms.kms_key
  labels         = { team = "field-service" }

  # Two topics, and messages of one order in both: they share a lane.
  subscriptions = {
    completed = { topic = "projects/${var.project_id}/topics/work-order-completed" }
    billed = {
      topic                = "projects/${var.project_id}/topics/billing-events"
      filter               = "attributes.eventType = \"WorkOrderBilled\""
      ack_deadline_seconds = 120
    }
  }

  receive = { max_instances = 50, min_instances = 1 }
  relay = {
    jobs                     = 2
    max_instances            = 5
    attempt_deadline_seconds = 150
    vpc                      = { network = var.network, subnetwork = var.subnetwork }
  }
  engine_secrets = {
    FLOWABLE_PASSWORD = { secret = "projects/${var.project_id}/secrets/flowable-password", version = "4" }
    BILLING_TOKEN     = { secret = "projects/${var.project_id}/secrets/billing-token", version = "1" }
  }

  operators = {
    ledger   = ["group:field-service-support@example.com"]
    payloads = ["group:field-service-engineers@example.com"]
  }
  alerts = {
    notification_channels = var.notification_channels
    oldest_open_seconds   = 7200
  }
}

module "shipments" {
  source = "../.."

  project_id     = var.project_id
  region         = var.region
  name           = "shipments"
  source_archive = var.source_archive
  config         = file("${path.module}/shipments.yaml")
  database       = module.database.database
  kms_key        = module.kms.kms_key
  labels         = { team = "logistics" }

  # A week of everything that was published, for a seek.
  subscriptions = { shipped = { topic_retention_seconds = 604800 } }

  operators = { payloads = ["group:logistics-engineers@example.com"] }
  alerts    = { notification_channels = var.notification_channels }
}
