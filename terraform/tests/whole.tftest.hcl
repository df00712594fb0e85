# Everything that the module can make, for TestAPlanOfTheWhole in whole_test.go: it compares all grants and alerts with
# tests/testdata/grants.csv and alerts.csv.

mock_provider "google" {
  source = "./tests/mocks"
}

override_resource {
  target = google_project_iam_custom_role.receive_payloads
  values = { id = "the role receive_payloads" }
}

override_resource {
  target = google_project_iam_custom_role.relay_payloads
  values = { id = "the role relay_payloads" }
}

override_resource {
  target = google_service_account.push
  values = { email = "inbox-push@demo.iam.gserviceaccount.com", name = "the account push" }
}

variables {
  project_id                 = "demo"
  region                     = "europe-west1"
  source_archive             = "tests/testdata/source.zip"
  config                     = file("tests/testdata/inbox.yaml")
  engine_secrets             = { WORK_ORDERS_TOKEN = { secret = "projects/demo/secrets/work-orders-token", version = "3" } }
  subscriptions              = { orders = {}, invoices = { topic = "projects/other/topics/invoices" } }
  operators                  = { ledger = ["group:support@example.com"], payloads = ["group:inbox@example.com"] }
  pubsub_agent_token_creator = true
}

run "the_module" {
  command = apply
}

run "the_key" {
  command = apply

  module {
    source = "./modules/kms_grants"
  }
  variables {
    kms_key = "the key"
  }
}
