output "database" {
  description = "Full name of the database: the root module's variable of that name, and SPANNER_DATABASE of inboxctl."
  value       = "projects/${var.project_id}/instances/${google_spanner_database.this.instance}/databases/${google_spanner_database.this.name}"
}

output "parts" {
  description = "Project, instance and name of the database."
  value = {
    project  = var.project_id
    instance = google_spanner_database.this.instance
    name     = google_spanner_database.this.name
  }
}
