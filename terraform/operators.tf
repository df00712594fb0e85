# People. Whoever is in the ledger's group alone is bound to a database role, which operator-roles.sql makes: the role has
# every table but the payloads. IAM alone cannot tell tables apart, and Terraform changes no schema.

resource "google_spanner_database_iam_member" "ledger_access" {
  for_each = var.operators.ledger

  project  = local.database.project
  instance = local.database.instance
  database = local.database.name
  role     = "roles/spanner.fineGrainedAccessUser"
  member   = each.value

  depends_on = [module.database]
}

resource "google_spanner_database_iam_member" "ledger_role" {
  for_each = var.operators.ledger

  project  = local.database.project
  instance = local.database.instance
  database = local.database.name
  role     = "roles/spanner.databaseRoleUser"
  member   = each.value

  condition {
    title      = "inbox_ledger only"
    expression = "resource.type == \"spanner.googleapis.com/DatabaseRole\" && resource.name.endsWith(\"/inbox_ledger\")"
  }

  depends_on = [module.database]
}

resource "google_spanner_database_iam_member" "payloads" {
  for_each = var.operators.payloads

  project  = local.database.project
  instance = local.database.instance
  database = local.database.name
  role     = "roles/spanner.databaseUser"
  member   = each.value

  depends_on = [module.database]
}

# reconcile lists, compares and sets custom times; drain puts objects.
resource "google_storage_bucket_iam_member" "payload_operators" {
  for_each = var.operators.payloads

  bucket = google_storage_bucket.payloads.name
  role   = "roles/storage.objectUser"
  member = each.value
}
