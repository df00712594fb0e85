# C074: everything that a dead letter needs, each assertion from Pub/Sub's documentation and not from the module.
# https://cloud.google.com/pubsub/docs/handling-failures

mock_provider "google" {
  source          = "./tests/mocks"
  override_during = plan
}

variables {
  project_id     = "demo"
  region         = "europe-west1"
  enable_apis    = false # not what is tested here
  database       = "projects/demo/instances/i/databases/d"
  source_archive = "tests/testdata/source.zip"
  config         = file("tests/testdata/inbox.yaml")
  engine_secrets = { WORK_ORDERS_TOKEN = { secret = "projects/demo/secrets/work-orders-token", version = "3" } }
  subscriptions  = { orders = {}, invoices = { topic = "projects/other/topics/invoices" } }
}

run "dead_letters_arrive" {
  command = plan

  assert {
    condition     = alltrue([for s in values(google_pubsub_subscription.push) : s.dead_letter_policy[0].dead_letter_topic == google_pubsub_topic.dead_letter.id])
    error_message = "Each subscription gives up to the dead-letter topic."
  }
  assert {
    condition     = alltrue([for s in values(google_pubsub_subscription.push) : can(regex("^projects/[^/]+/topics/[^/]+$", s.dead_letter_policy[0].dead_letter_topic))])
    error_message = "A dead-letter topic is a full resource name."
  }
  assert {
    # 5 to 100; DeadLetterPolicy.max_delivery_attempts.
    condition     = alltrue([for s in values(google_pubsub_subscription.push) : s.dead_letter_policy[0].max_delivery_attempts >= 5 && s.dead_letter_policy[0].max_delivery_attempts <= 100])
    error_message = "Pub/Sub takes 5 to 100 attempts."
  }
  assert {
    condition = (google_pubsub_topic_iam_member.dead_letter_publisher.topic == google_pubsub_topic.dead_letter.name &&
      google_pubsub_topic_iam_member.dead_letter_publisher.role == "roles/pubsub.publisher" &&
    google_pubsub_topic_iam_member.dead_letter_publisher.member == "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com")
    error_message = "Pub/Sub's service agent, by the project's number, publishes to the dead-letter topic."
  }
  assert {
    condition = (keys(google_pubsub_subscription_iam_member.dead_letter_subscriber) == keys(google_pubsub_subscription.push) &&
      alltrue([for key, grant in google_pubsub_subscription_iam_member.dead_letter_subscriber :
        grant.subscription == google_pubsub_subscription.push[key].name &&
        grant.role == "roles/pubsub.subscriber" &&
    grant.member == "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com"]))
    error_message = "Pub/Sub's service agent is subscriber of each source subscription."
  }
  assert {
    condition     = google_pubsub_subscription.dead_letter.topic == google_pubsub_topic.dead_letter.id
    error_message = "The dead-letter topic has a subscription: what is published without one is gone."
  }
  assert {
    condition     = google_pubsub_subscription.dead_letter.expiration_policy[0].ttl == ""
    error_message = "The dead-letter subscription never expires."
  }
  assert {
    # 31 days is Pub/Sub's longest.
    condition     = google_pubsub_subscription.dead_letter.message_retention_duration == "${31 * 24 * 3600}s"
    error_message = "The dead-letter subscription keeps a message as long as Pub/Sub can."
  }
  assert {
    condition     = length(google_pubsub_subscription.dead_letter.dead_letter_policy) == 0
    error_message = "The dead-letter subscription is the final stop: it gives up to nothing."
  }
  assert {
    condition     = length(google_pubsub_subscription.dead_letter.retry_policy) == 1
    error_message = "Without a retry policy a refused dead letter comes back at once, for ever."
  }
  assert {
    condition = (google_pubsub_subscription.dead_letter.push_config[0].push_endpoint == "https://inbox-receive-123456789012.europe-west1.run.app/dead-letter" &&
      google_pubsub_subscription.dead_letter.push_config[0].oidc_token[0].audience == module.receive.environment.PUSH_AUDIENCE &&
    google_pubsub_subscription.dead_letter.push_config[0].oidc_token[0].service_account_email == module.receive.environment.PUSH_SERVICE_ACCOUNTS)
    error_message = "Dead letters are pushed to /dead-letter, with the identity and audience that the function expects."
  }
  assert {
    # 20 s for a cold start; Pub/Sub takes 10 to 600 s.
    condition = (google_pubsub_subscription.dead_letter.ack_deadline_seconds >= module.receive.settings.timeout_seconds + 20 &&
    google_pubsub_subscription.dead_letter.ack_deadline_seconds >= 10 && google_pubsub_subscription.dead_letter.ack_deadline_seconds <= 600)
    error_message = "The ack deadline holds the slowest answer after a cold start, and is one that Pub/Sub takes."
  }
}

run "a_slow_receive_has_longer_for_a_dead_letter" {
  command = plan

  variables {
    receive       = { timeout_seconds = 100 }
    subscriptions = { orders = { ack_deadline_seconds = 120 } }
  }
  assert {
    # 20 s for a cold start; Pub/Sub takes 10 to 600 s.
    condition = (google_pubsub_subscription.dead_letter.ack_deadline_seconds >= module.receive.settings.timeout_seconds + 20 &&
    google_pubsub_subscription.dead_letter.ack_deadline_seconds >= 10 && google_pubsub_subscription.dead_letter.ack_deadline_seconds <= 600)
    error_message = "The ack deadline holds the slowest answer after a cold start, and is one that Pub/Sub takes."
  }
}
