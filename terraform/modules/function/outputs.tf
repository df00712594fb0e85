output "service" {
  description = "Name of the Cloud Run service below the function."
  value       = data.google_cloud_run_v2_service.this.name
}

output "url" {
  description = "The URL that callers use, once the service is known to answer under it."
  value       = var.url
  depends_on  = [data.google_cloud_run_v2_service.this]
}

output "settings" {
  description = "What the function got: entry point, account, source object, limits of an instance and of a request, ingress."
  value = {
    entry_point     = google_cloudfunctions2_function.this.build_config[0].entry_point
    source_object   = google_cloudfunctions2_function.this.build_config[0].source[0].storage_source[0].object
    service_account = google_cloudfunctions2_function.this.service_config[0].service_account_email
    concurrency     = google_cloudfunctions2_function.this.service_config[0].max_instance_request_concurrency
    max_instances   = google_cloudfunctions2_function.this.service_config[0].max_instance_count
    min_instances   = google_cloudfunctions2_function.this.service_config[0].min_instance_count
    memory          = google_cloudfunctions2_function.this.service_config[0].available_memory
    cpu             = google_cloudfunctions2_function.this.service_config[0].available_cpu
    timeout_seconds = google_cloudfunctions2_function.this.service_config[0].timeout_seconds
    ingress         = google_cloudfunctions2_function.this.service_config[0].ingress_settings
  }
}

output "environment" {
  description = "The function's environment variables, without the secret ones."
  value       = google_cloudfunctions2_function.this.service_config[0].environment_variables
}

output "secret_environment" {
  description = "Secret environment variables: the secret and version of each."
  value = {
    for e in google_cloudfunctions2_function.this.service_config[0].secret_environment_variables : e.key => "projects/${e.project_id}/secrets/${e.secret}/versions/${e.version}"
  }
}

output "mounted" {
  description = "Files that are mounted: the secret and version of each."
  value = {
    for v in google_cloudfunctions2_function.this.service_config[0].secret_volumes :
    "${v.mount_path}/${v.versions[0].path}" => "projects/${v.project_id}/secrets/${v.secret}/versions/${v.versions[0].version}"
  }
}
