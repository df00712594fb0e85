output "database" {
  description = "SPANNER_DATABASE of inboxctl."
  value       = local.environment.SPANNER_DATABASE
}

output "payload_bucket" {
  description = "PAYLOAD_BUCKET of inboxctl."
  value       = google_storage_bucket.payloads.name
}

output "topics" {
  description = "Full names of the topics, by subscription: where publishers publish."
  value       = { for key, s in google_pubsub_subscription.push : key => s.topic }
}

output "subscriptions" {
  description = "Full names of the push subscriptions."
  value       = { for key, s in google_pubsub_subscription.push : key => "projects/${var.project_id}/subscriptions/${s.name}" }
}

output "dead_letter_subscription" {
  description = "Full name of the dead-letter topic's own subscription."
  value       = "projects/${var.project_id}/subscriptions/${google_pubsub_subscription.dead_letter.name}"
}

output "receive_url" {
  description = "URL of the receive function: endpoint and audience of every push subscription to it."
  value       = local.receive_url
}

output "relay_url" {
  description = "URL of the relay function."
  value       = local.relay_url
}

output "relay_service_account" {
  description = "Account that the relay calls engines as: whom an engine with auth kind oidc must let in."
  value       = google_service_account.relay.email
}

output "push_service_account" {
  description = "Account of the push subscriptions."
  value       = google_service_account.push.email
}

output "ephemeral" {
  description = "Whether a destroy is meant to take database and payloads along."
  value       = var.ephemeral
}

output "outage_hours" {
  description = "How long the inbox can be down before Pub/Sub begins to dead-letter healthy messages, by subscription, in hours. They are not lost then: the dead-letter subscription keeps them for 31 days and brings them back."
  value       = { for key, s in local.outage_seconds : key => floor(s / 360) / 10 }
}

output "alerts" {
  description = "Full names of the alert policies, by name."
  value       = { for key, policy in google_monitoring_alert_policy.inbox : key => policy.name }
}
