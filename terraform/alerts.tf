# Each alert is a row: when it fires, after how long, how urgent it is, and why it is there. docs/operations.md has a
# runbook under its name. What says whether messages are stuck comes from the database (the relay's reporter writes it) or
# from Google's own metrics: counters of a process that scales to zero, or cannot export, would be silent just when it counts.

locals {
  # For PromQL: the gauges of this consumer, and the Pub/Sub and Cloud Run series of this instance.
  of_consumer      = "consumer=${jsonencode(local.consumer)}"
  of_subscriptions = "subscription_id=~${jsonencode("${var.name}-.+")}"
  of_receive       = "monitored_resource=\"cloud_run_revision\",service_name=${jsonencode(local.receive_name)}"
  of_relay         = "monitored_resource=\"cloud_run_revision\",service_name=${jsonencode(local.relay_name)}"
  of_dead_letter   = "subscription_id=${jsonencode("${var.name}-dead-letter")}"

  alerts = {
    parked = {
      severity = "WARNING"
      for      = "0s"
      query    = "max by (reason) (inbox_parked_messages{${local.of_consumer},reason!=\"DEDUPE_CONFLICT\",reason!=\"DEAD_LETTERED\"}) > 0"
      reason   = "A parked message waits for a person, and for nobody else."
    }
    oldest-open = {
      severity = "ERROR"
      for      = "300s"
      query    = "max(inbox_oldest_open_age_seconds{${local.of_consumer}}) > ${var.alerts.oldest_open_seconds}"
      reason   = "Something that was stored does not get through: an outage, a held lane, or a fault of ours. No error need ever be logged for it."
    }
    dedupe-conflict = {
      severity = "WARNING"
      for      = "0s"
      query    = "max(inbox_parked_messages{${local.of_consumer},reason=\"DEDUPE_CONFLICT\"}) > 0"
      reason   = "Two different messages have the same dedupe key: as a rule a key without an event id, and then each further message of its kind is a conflict."
    }
    dead-letters = {
      severity = "ERROR"
      for      = "0s"
      query    = "max(inbox_parked_messages{${local.of_consumer},reason=\"DEAD_LETTERED\"}) > 0 or sum(increase(pubsub_googleapis_com:subscription_push_request_count{${local.of_dead_letter}}[10m])) > 0"
      reason   = "The endpoint refused a message so often that Pub/Sub gave it up. A healthy inbox takes every message at once."
    }
    dead-letters-forwarded = {
      severity = "ERROR"
      for      = "0s"
      query    = "sum by (subscription_id) (increase(pubsub_googleapis_com:subscription_dead_letter_message_count{${local.of_subscriptions}}[10m])) > 0"
      reason   = "The same as the broker sees it. Beside the number of rows it tells whether any got lost on the way."
    }
    dead-letters-waiting = {
      severity = "CRITICAL"
      for      = "600s"
      query    = "max(pubsub_googleapis_com:subscription_num_undelivered_messages{${local.of_dead_letter}}) > 0"
      reason   = "The last net holds messages that the inbox does not take. They are gone 31 days after they were dead-lettered."
    }
    relay-not-succeeding = {
      severity = "CRITICAL"
      for      = "300s"
      query    = "(sum(increase(run_googleapis_com:request_count{${local.of_relay},response_code_class=\"2xx\"}[10m])) or vector(0)) < 1"
      reason   = "A run ends well every minute. Without one nothing moves, and the gauges below are not written either."
    }
    receive-failing = {
      severity = "ERROR"
      for      = "300s"
      query    = "sum(rate(run_googleapis_com:request_count{${local.of_receive},response_code_class!=\"2xx\"}[5m])) / sum(rate(run_googleapis_com:request_count{${local.of_receive}}[5m])) > 0.05"
      reason   = "Messages are refused, and come back with growing pauses; Pub/Sub slows down the whole subscription."
    }
    metrics-missing = {
      severity = "ERROR"
      for      = "900s"
      query    = "absent(inbox_oldest_open_age_seconds{${local.of_consumer}})"
      reason   = "The gauges that most alerts here look at are not written. Silence would look like health."
    }
    engine-paused = {
      severity = "ERROR"
      for      = "60s"
      query    = "max by (engine) (inbox_engine_paused{${local.of_consumer}}) > 0"
      reason   = "An engine refuses our credentials, or a person paused it. Its messages wait, and nothing else says so."
    }
    unknown-routes = {
      severity = "WARNING"
      for      = "600s"
      query    = "max(inbox_unknown_route_messages{${local.of_consumer}}) > 0"
      reason   = "Open messages name a route that the configuration no longer has. They wait and are never parked. During a deployment that is normal for minutes."
    }
    expired-leases = {
      severity = "WARNING"
      for      = "300s"
      query    = "max(inbox_oldest_expired_lease_age_seconds{${local.of_consumer}}) > 120"
      reason   = "A lost worker's lane should be claimed anew by the next run. If it is not, its messages are stuck in PROCESSING."
    }
    redeliveries = {
      severity = "WARNING"
      for      = "900s"
      query = join(" or ", [
        "100 * sum(rate(pubsub_googleapis_com:subscription_push_request_count{${local.of_subscriptions},response_class!=\"ack\"}[15m])) / sum(rate(pubsub_googleapis_com:subscription_push_request_count{${local.of_subscriptions}}[15m])) > ${var.alerts.redelivery_percent}",
        "100 * sum(rate(inbox_redelivered_total{${local.of_consumer}}[15m])) / sum(rate(inbox_received_total{${local.of_consumer}}[15m])) > ${var.alerts.redelivery_percent}",
      ])
      reason = "Answers that come late or get lost, instances that die, a publisher that repeats itself, or a replay. Nothing runs twice for it, but each costs two round trips more."
    }
    oldest-unacked = {
      severity = "CRITICAL"
      for      = "60s"
      query    = "max by (subscription_id) (pubsub_googleapis_com:subscription_oldest_unacked_message_age{${local.of_subscriptions}}) > ${var.alerts.oldest_unacked_seconds}"
      reason   = "A message is not in the inbox although it was published so long ago. After its retention it is lost: this is the one place where that can happen."
    }
    backlog = {
      severity = "WARNING"
      for      = "600s"
      query    = "max by (subscription_id) (pubsub_googleapis_com:subscription_num_undelivered_messages{${local.of_subscriptions}}) > ${var.alerts.backlog_messages}"
      reason   = "More comes than is stored: too few instances, a quota, or Pub/Sub's slow start after an outage."
    }
  }
}

resource "google_monitoring_alert_policy" "inbox" {
  for_each = { for name, alert in local.alerts : name => alert if !contains(var.alerts.disabled, name) }

  project               = var.project_id
  display_name          = "${var.name}: ${each.key}"
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = var.alerts.notification_channels
  user_labels           = local.labels

  conditions {
    display_name = each.key
    condition_prometheus_query_language {
      query    = each.value.query
      duration = each.value.for
      # A metric exists once it has been written: some of these only after the first incident.
      disable_metric_validation = true
    }
  }

  documentation {
    content   = each.value.reason
    mime_type = "text/markdown"
    subject   = "${var.name} (${local.consumer}): ${each.key}"
    links {
      display_name = "Runbook"
      url          = "${var.alerts.runbook_url}#${each.key}"
    }
  }

  alert_strategy {
    auto_close = "86400s"
  }

  depends_on = [google_project_service.api]
}

# Of its own subscription, so that a subscription that goes takes it along and no other alert changes.
resource "google_monitoring_alert_policy" "subscription_gone" {
  for_each = contains(var.alerts.disabled, "subscription-gone") ? {} : merge(
    { for key, s in google_pubsub_subscription.push : key => s.name },
    { dead-letter = google_pubsub_subscription.dead_letter.name },
  )

  project               = var.project_id
  display_name          = "${var.name}: subscription-gone: ${each.key}"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = var.alerts.notification_channels
  user_labels           = local.labels

  conditions {
    display_name = "subscription-gone"
    condition_prometheus_query_language {
      query                     = "absent(pubsub_googleapis_com:subscription_num_undelivered_messages{subscription_id=${jsonencode(each.value)}})"
      duration                  = "1800s"
      disable_metric_validation = true
    }
  }

  documentation {
    content   = "Nothing is reported of the subscription: it was deleted or detached, and what is published now reaches nobody."
    mime_type = "text/markdown"
    subject   = "${var.name} (${local.consumer}): ${each.key} is gone"
    links {
      display_name = "Runbook"
      url          = "${var.alerts.runbook_url}#subscription-gone"
    }
  }

  alert_strategy {
    auto_close = "86400s"
  }
}
