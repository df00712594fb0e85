# Terraform makes the database and never its tables: those are `inboxctl migrate`'s, which knows how to change them.

module "database" {
  source = "./modules/database"
  count  = var.database == null ? 1 : 0

  project_id            = var.project_id
  name                  = var.name
  instance              = var.spanner.instance
  config                = coalesce(var.spanner.config, "regional-${var.region}")
  edition               = var.spanner.edition
  processing_units      = var.spanner.processing_units
  autoscaling           = var.spanner.autoscaling
  version_retention     = var.spanner.version_retention
  backup_schedule       = var.spanner.backup_schedule
  backup_retention_days = var.spanner.backup_retention_days
  kms_key               = var.kms_key
  labels                = local.labels
  ephemeral             = var.ephemeral

  depends_on = [google_project_service.api]
}

locals {
  database = var.database == null ? module.database[0].parts : {
    project  = split("/", var.database)[1]
    instance = split("/", var.database)[3]
    name     = split("/", var.database)[5]
  }
}
