mock_data "google_project" {
  defaults = { number = "123456789012" }
}

mock_data "google_cloud_run_v2_service" {
  defaults = {
    urls = [
      "https://inbox-receive-123456789012.europe-west1.run.app",
      "https://inbox-relay-123456789012.europe-west1.run.app",
    ]
  }
}

override_resource {
  target = google_service_account.receive
  values = { email = "inbox-receive@demo.iam.gserviceaccount.com" }
}

override_resource {
  target = google_service_account.relay
  values = { email = "inbox-relay@demo.iam.gserviceaccount.com" }
}

override_resource {
  target = google_service_account.push
  values = { email = "inbox-push@demo.iam.gserviceaccount.com" }
}

override_resource {
  target = google_service_account.scheduler
  values = { email = "inbox-scheduler@demo.iam.gserviceaccount.com" }
}

override_resource {
  target = google_service_account.build[0]
  values = { email = "inbox-build@demo.iam.gserviceaccount.com" }
}

override_resource {
  target = google_pubsub_topic.dead_letter
  values = { id = "projects/demo/topics/inbox-dead-letter" }
}
