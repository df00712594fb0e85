locals {
  # Pub/Sub's longest: a dead letter is what no second net catches.
  dead_letter_retention = 2678400

  # How long all deliveries of a message take at least, if each wait is twice the one before, from min to max backoff.
  # The request's own time comes on top. Pub/Sub does not say its factor; a smaller one makes it shorter.
  outage_seconds = {
    for key, s in var.subscriptions : key => sum([
      for n in range(s.max_delivery_attempts - 1) : min(s.max_backoff_seconds, max(1, s.min_backoff_seconds) * pow(2, min(n, 30)))
    ])
  }
}

resource "google_pubsub_topic" "events" {
  for_each = { for key, s in var.subscriptions : key => s if s.topic == null }

  project                    = var.project_id
  name                       = "${var.name}-${each.key}"
  labels                     = local.labels
  kms_key_name               = var.kms_key
  message_retention_duration = each.value.topic_retention_seconds == null ? null : "${each.value.topic_retention_seconds}s"

  depends_on = [google_project_service.api]
}

resource "google_pubsub_subscription" "push" {
  for_each = var.subscriptions

  project = var.project_id
  name    = "${var.name}-${each.key}"
  topic   = each.value.topic == null ? google_pubsub_topic.events[each.key].id : each.value.topic
  labels  = local.labels
  filter  = each.value.filter

  ack_deadline_seconds       = each.value.ack_deadline_seconds
  message_retention_duration = "${each.value.retention_seconds}s"
  retain_acked_messages      = each.value.retain_acked

  # The inbox orders by itself, over several topics too. With ordering keys a redelivery brings all later messages of its
  # key again, one message of a key at a time is under way, and a dead-letter policy weakens the order anyway.
  enable_message_ordering = false

  # Without this block a subscription that is idle for 31 days is deleted, with all that is published afterwards.
  expiration_policy {
    ttl = ""
  }

  # Without this block what is refused comes back at once, and is dead-lettered within seconds.
  retry_policy {
    minimum_backoff = "${each.value.min_backoff_seconds}s"
    maximum_backoff = "${each.value.max_backoff_seconds}s"
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.dead_letter.id
    max_delivery_attempts = each.value.max_delivery_attempts
  }

  push_config {
    push_endpoint = local.receive_url
    oidc_token {
      service_account_email = google_service_account.push.email
      audience              = local.receive_url
    }
  }

  lifecycle {
    precondition {
      # 20 s for a cold start, which is not in the function's own timeout.
      condition     = each.value.ack_deadline_seconds >= var.receive.timeout_seconds + 20
      error_message = "${each.key}: ack_deadline_seconds (${each.value.ack_deadline_seconds}) must be at least receive.timeout_seconds (${var.receive.timeout_seconds}) plus 20 for a cold start, or Pub/Sub delivers again what is still being stored."
    }
    precondition {
      condition     = local.outage_seconds[each.key] >= each.value.outage_hours * 3600
      error_message = "${each.key}: an outage of ${floor(local.outage_seconds[each.key] / 3600)} h would dead-letter healthy messages, outage_hours is ${each.value.outage_hours}: raise max_delivery_attempts or the backoffs."
    }
    precondition {
      condition     = each.value.retention_seconds > local.outage_seconds[each.key]
      error_message = "${each.key}: retention_seconds (${each.value.retention_seconds}) must be longer than all deliveries take (${local.outage_seconds[each.key]} s): what is not delivered by then is gone, and never dead-lettered."
    }
    precondition {
      condition     = local.seconds["back_subscription"] >= max(each.value.retention_seconds, each.value.topic_retention_seconds == null ? 0 : each.value.topic_retention_seconds)
      error_message = "${each.key}: retention.waysBack.subscription (${local.durations["back_subscription"]}) is shorter than the subscription or its topic keeps messages: one that comes back after its row is gone runs a second time."
    }
  }
}

# Dead letters: the topic, a subscription of its own, and both grants. Any one missing, and messages loop or vanish.

resource "google_pubsub_topic" "dead_letter" {
  project      = var.project_id
  name         = "${var.name}-dead-letter"
  labels       = local.labels
  kms_key_name = var.kms_key

  depends_on = [google_project_service.api]
}

resource "google_pubsub_subscription" "dead_letter" {
  project = var.project_id
  name    = "${var.name}-dead-letter"
  topic   = google_pubsub_topic.dead_letter.id
  labels  = local.labels

  ack_deadline_seconds       = max(60, var.receive.timeout_seconds + 20)
  message_retention_duration = "${local.dead_letter_retention}s"
  enable_message_ordering    = false

  expiration_policy {
    ttl = ""
  }

  # No dead-letter policy: this is the one final stop, and it is tried until its retention ends.
  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

  push_config {
    push_endpoint = "${local.receive_url}/dead-letter"
    oidc_token {
      service_account_email = google_service_account.push.email
      audience              = local.receive_url
    }
  }
}

resource "google_pubsub_topic_iam_member" "dead_letter_publisher" {
  project = var.project_id
  topic   = google_pubsub_topic.dead_letter.name
  role    = "roles/pubsub.publisher"
  member  = local.pubsub_agent
}

resource "google_pubsub_subscription_iam_member" "dead_letter_subscriber" {
  for_each = var.subscriptions

  project      = var.project_id
  subscription = google_pubsub_subscription.push[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}
