output "database" {
  description = "SPANNER_DATABASE of inboxctl."
  value       = module.inbox.database
}

output "payload_bucket" {
  description = "PAYLOAD_BUCKET of inboxctl."
  value       = module.inbox.payload_bucket
}

output "topic" {
  description = "Where publishers publish."
  value       = module.inbox.topics["events"]
}

output "subscription" {
  description = "The push subscription of that topic."
  value       = module.inbox.subscriptions["events"]
}

output "config" {
  description = "The configuration that is deployed."
  value       = file(coalesce(var.config_file, "${path.module}/inbox.yaml"))
}

output "ephemeral" {
  description = "Whether `make destroy` may take database and payloads along."
  value       = module.inbox.ephemeral
}

output "dead_letter_subscription" {
  description = "The dead-letter topic's own subscription."
  value       = module.inbox.dead_letter_subscription
}
