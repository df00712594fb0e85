# What the inputs can change.

mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project_id     = "demo"
  region         = "europe-west1"
  source_archive = "tests/testdata/source.zip"
  config         = file("tests/testdata/inbox.yaml")
  engine_secrets = { WORK_ORDERS_TOKEN = { secret = "projects/demo/secrets/work-orders-token", version = "3" } }
  subscriptions  = { orders = {}, invoices = { topic = "projects/other/topics/invoices" } }
}

run "an_existing_database_is_used_and_left_alone" {
  command = plan

  variables {
    database = "projects/data/instances/shared/databases/inboxes"
  }
  assert {
    condition     = length(module.database) == 0 && output.database == "projects/data/instances/shared/databases/inboxes"
    error_message = "Nothing is made."
  }
  assert {
    condition     = google_spanner_database_iam_member.relay.project == "data" && google_spanner_database_iam_member.relay.instance == "shared" && google_spanner_database_iam_member.relay.database == "inboxes"
    error_message = "Grants are on the existing database."
  }
}

run "operators_have_the_ledger_or_the_payloads" {
  command = plan

  variables {
    operators = { ledger = ["group:support@example.com"], payloads = ["group:inbox@example.com"] }
  }
  assert {
    condition = (google_spanner_database_iam_member.ledger_access["group:support@example.com"].role == "roles/spanner.fineGrainedAccessUser" &&
      google_spanner_database_iam_member.ledger_role["group:support@example.com"].role == "roles/spanner.databaseRoleUser" &&
    strcontains(google_spanner_database_iam_member.ledger_role["group:support@example.com"].condition[0].expression, "endsWith(\"/inbox_ledger\")"))
    error_message = "The ledger's group is bound to its database role."
  }
  assert {
    condition     = keys(google_spanner_database_iam_member.payloads) == ["group:inbox@example.com"] && keys(google_storage_bucket_iam_member.payload_operators) == ["group:inbox@example.com"]
    error_message = "Payloads are for their own group only."
  }
}

run "a_key_protects_everything_that_has_data" {
  command = apply

  variables {
    kms_key = "projects/keys/locations/europe-west1/keyRings/inbox/cryptoKeys/data"
  }
  assert {
    condition = alltrue([for key in [
      google_pubsub_topic.events["orders"].kms_key_name, google_pubsub_topic.dead_letter.kms_key_name,
      google_storage_bucket.payloads.encryption[0].default_kms_key_name, google_storage_bucket.source.encryption[0].default_kms_key_name,
      google_secret_manager_secret.config.replication[0].user_managed[0].replicas[0].customer_managed_encryption[0].kms_key_name,
      google_artifact_registry_repository.images[0].kms_key_name,
    ] : key == "projects/keys/locations/europe-west1/keyRings/inbox/cryptoKeys/data"])
    error_message = "Topics, buckets, configuration and images."
  }
}

run "a_key_is_for_the_agents_of_what_it_protects" {
  command = plan

  module {
    source = "./modules/kms_grants"
  }
  variables {
    kms_key = "projects/keys/locations/europe-west1/keyRings/inbox/cryptoKeys/data"
  }
  assert {
    condition     = alltrue([for m in values(google_kms_crypto_key_iam_member.agent) : m.role == "roles/cloudkms.cryptoKeyEncrypterDecrypter" && can(regex("^serviceAccount:service-123456789012@", m.member))])
    error_message = "Agents by the project's number."
  }
}

run "an_old_project_lets_pubsub_make_tokens" {
  command = plan

  variables {
    pubsub_agent_token_creator = true
  }
  assert {
    condition = (google_service_account_iam_member.push_tokens[0].role == "roles/iam.serviceAccountTokenCreator" &&
    google_service_account_iam_member.push_tokens[0].member == "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com")
    error_message = "Pub/Sub's agent makes tokens of the push identity, not the push identity of itself."
  }
}

run "a_trial_leaves_nothing_behind" {
  command = plan

  variables {
    ephemeral = true
  }
  assert {
    condition     = google_storage_bucket.payloads.force_destroy == true && google_secret_manager_secret_version.config.deletion_policy == "DELETE"
    error_message = "Buckets are emptied, versions deleted."
  }
}

run "replay_is_an_input" {
  command = plan

  variables {
    subscriptions = { orders = { retain_acked = true, topic_retention_seconds = 604800, filter = "attributes.eventType = \"WorkOrderCompleted\"" } }
  }
  assert {
    condition     = google_pubsub_subscription.push["orders"].retain_acked_messages == true && google_pubsub_topic.events["orders"].message_retention_duration == "604800s"
    error_message = "Acknowledged messages are kept where that is asked for."
  }
}

run "durations_are_read_as_the_functions_read_them" {
  command = plan

  variables {
    config         = "{consumer: c, engines: {a: {kind: http, timeout: 1m30s}, b: {kind: http, timeout: 500ms}}, routes: [{name: r}], retention: {payload: 1d12h}, relay: {budget: 1m, lease: 4m2s}}"
    engine_secrets = {}
    relay          = { attempt_deadline_seconds = 160, timeout_seconds = 161 }
  }
  assert {
    condition     = local.seconds == { budget = 60, lease = 242, processed = 75 * 86400, payload = 129600, back_subscription = 31 * 86400, back_dead_letter = 31 * 86400, back_replay = 7 * 86400, "engine a" = 90, "engine b" = 0.5 }
    error_message = "Days, minutes, seconds and parts of them."
  }
  assert {
    condition     = one(google_storage_bucket.payloads.lifecycle_rule[0].condition).days_since_custom_time == 2
    error_message = "A day and a half is two whole days: never earlier than promised."
  }
}

run "alerts_reach_somebody_and_say_what_to_do" {
  command = plan

  variables {
    alerts = {
      notification_channels  = ["projects/demo/notificationChannels/1", "projects/demo/notificationChannels/2"]
      runbook_url            = "https://runbooks.example/inbox"
      oldest_open_seconds    = 11
      oldest_unacked_seconds = 12
      backlog_messages       = 13
      redelivery_percent     = 14
      disabled               = ["parked"]
    }
  }
  assert {
    condition = alltrue([for p in concat(values(google_monitoring_alert_policy.inbox), values(google_monitoring_alert_policy.subscription_gone)) :
    p.notification_channels == tolist(["projects/demo/notificationChannels/1", "projects/demo/notificationChannels/2"])])
    error_message = "Each alert has all notification channels."
  }
  assert {
    condition = alltrue(concat(
      [for name, p in google_monitoring_alert_policy.inbox : p.documentation[0].links[0].url == "https://runbooks.example/inbox#${name}" && p.conditions[0].display_name == name],
      [for p in google_monitoring_alert_policy.subscription_gone : p.documentation[0].links[0].url == "https://runbooks.example/inbox#subscription-gone" && p.conditions[0].display_name == "subscription-gone"],
    ))
    error_message = "Each alert links its own runbook."
  }
  assert {
    condition     = keys(google_monitoring_alert_policy.subscription_gone) == ["dead-letter", "invoices", "orders"]
    error_message = "Each subscription has its alert, that of the dead letters too."
  }
  assert {
    condition = alltrue([for name, limit in { oldest-open = 11, oldest-unacked = 12, backlog = 13, redeliveries = 14 } :
    alltrue([for branch in split(" or ", google_monitoring_alert_policy.inbox[name].conditions[0].condition_prometheus_query_language[0].query) : endswith(branch, " > ${limit}")])])
    error_message = "Thresholds are the inputs."
  }
  assert {
    condition     = !contains(keys(google_monitoring_alert_policy.inbox), "parked") && length(google_monitoring_alert_policy.inbox) >= 14
    error_message = "What is disabled is not there, and everything else is."
  }
}
