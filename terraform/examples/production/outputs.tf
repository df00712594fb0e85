output "database" {
  description = "SPANNER_DATABASE of inboxctl."
  value       = module.database.database
}

output "relay_service_accounts" {
  description = "Accounts that the engines must let in."
  value       = [module.work_orders.relay_service_account, module.shipments.relay_service_account]
}

output "outage_hours" {
  description = "How long each inbox can be down before Pub/Sub begins to dead-letter."
  value       = merge(module.work_orders.outage_hours, module.shipments.outage_hours)
}
