mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  mock_data "google_cloud_run_v2_service" {
    defaults = {
      urls = [
        "https://work-orders-receive-123456789012.europe-west1.run.app",
        "https://work-orders-relay-123456789012.europe-west1.run.app",
        "https://shipments-receive-123456789012.europe-west1.run.app",
        "https://shipments-relay-123456789012.europe-west1.run.app",
      ]
    }
  }
}

variables {
  project_id            = "demo"
  source_archive        = "../../tests/testdata/source.zip"
  kms_key               = "projects/keys/locations/europe-west1/keyRings/inbox/cryptoKeys/data"
  network               = "projects/net/global/networks/main"
  subnetwork            = "projects/net/regions/europe-west1/subnetworks/engines"
  notification_channels = ["projects/demo/notificationChannels/1"]
}

run "two_consumers_share_a_database" {
  command = apply

  assert {
    condition     = output.database == "projects/demo/instances/inboxes/databases/inboxes" && module.work_orders.database == output.database && module.shipments.database == output.database
    error_message = "One database, and no other is made."
  }
  assert {
    condition     = module.work_orders.receive_url != module.shipments.receive_url && module.work_orders.payload_bucket != module.shipments.payload_bucket && length(setintersection(values(module.work_orders.subscriptions), values(module.shipments.subscriptions))) == 0
    error_message = "Everything else is each one's own."
  }
  assert {
    condition     = module.work_orders.topics["completed"] == "projects/demo/topics/work-order-completed"
    error_message = "Existing topics are used."
  }
  assert {
    condition     = alltrue([for h in values(output.outage_hours) : h >= 12])
    error_message = "Half a day of outage dead-letters nothing."
  }
}
