mock_provider "google" {
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
}

variables {
  project_id     = "demo"
  source_archive = "../../tests/testdata/source.zip"
}

run "it_is_a_whole_deployment" {
  command = apply

  assert {
    condition     = output.database == "projects/demo/instances/inbox/databases/inbox" && output.payload_bucket == "demo-inbox-payloads" && output.subscription == "projects/demo/subscriptions/inbox-events"
    error_message = "What the command line and the smoke test need."
  }
  assert {
    condition     = output.config == file("inbox.yaml")
    error_message = "The smoke test knows the configuration that is deployed."
  }
}

run "another_configuration" {
  command = plan

  variables {
    config_file    = "../../tests/testdata/inbox.yaml"
    engine_secrets = { WORK_ORDERS_TOKEN = { secret = "projects/demo/secrets/token", version = "1" } }
  }
  assert {
    condition     = output.config == file("../../tests/testdata/inbox.yaml")
    error_message = "Your own."
  }
}
