# Each tile is a question that somebody asks in an incident.

locals {
  questions = [
    {
      title = "What waits for a person, and why?"
      unit  = "1"
      lines = { "reason" = "max by (reason) (inbox_parked_messages{${local.of_consumer}})" }
    },
    {
      title = "How old is the oldest open message, and the oldest attempt under way?"
      unit  = "s"
      lines = {
        "open"          = "max(inbox_oldest_open_age_seconds{${local.of_consumer}})"
        "processing"    = "max(inbox_oldest_processing_age_seconds{${local.of_consumer}})"
        "expired lease" = "max(inbox_oldest_expired_lease_age_seconds{${local.of_consumer}})"
      }
    },
    {
      title = "Are duplicates becoming more?"
      unit  = "1/s"
      lines = {
        "redelivered or republished" = "sum(rate(inbox_redelivered_total{${local.of_consumer}}[10m]))"
        "conflicts"                  = "sum(rate(inbox_conflicts_total{${local.of_consumer}}[10m]))"
        "not acknowledged"           = "sum(rate(pubsub_googleapis_com:subscription_push_request_count{${local.of_subscriptions},response_class!=\"ack\"}[10m]))"
      }
    },
    {
      title = "Which types come in?"
      unit  = "1/s"
      lines = { "type" = "sum by (type) (rate(inbox_received_total{${local.of_consumer}}[10m]))" }
    },
    {
      title = "Which routes fail, and how?"
      unit  = "1/s"
      lines = {
        "retried" = "sum by (route, verdict) (rate(inbox_retried_total{${local.of_consumer}}[10m]))"
        "parked"  = "sum by (route, reason) (rate(inbox_parked_total{${local.of_consumer}}[10m]))"
      }
    },
    {
      title = "Do workers get lost?"
      unit  = "1/s"
      lines = {
        "lost workers" = "sum(rate(inbox_lost_workers_total{${local.of_consumer}}[10m]))"
        "late results" = "sum(rate(inbox_late_results_total{${local.of_consumer}}[10m]))"
        "poisoned"     = "sum(rate(inbox_poisoned_total{${local.of_consumer}}[10m]))"
      }
    },
    {
      title = "How long from publishing to correlation?"
      unit  = "s"
      lines = {
        "half"   = "histogram_quantile(0.5, sum by (le) (rate(inbox_publish_to_correlation_seconds_bucket{${local.of_consumer}}[10m])))"
        "99 %"   = "histogram_quantile(0.99, sum by (le) (rate(inbox_publish_to_correlation_seconds_bucket{${local.of_consumer}}[10m])))"
        "commit" = "histogram_quantile(0.99, sum by (le) (rate(inbox_commit_seconds_bucket{${local.of_consumer}}[10m])))"
      }
    },
    {
      title = "Which engine is slow, or failing?"
      unit  = "s"
      lines = {
        "99 %"   = "histogram_quantile(0.99, sum by (engine, le) (rate(inbox_engine_call_seconds_bucket{${local.of_consumer}}[10m])))"
        "paused" = "max by (engine) (inbox_engine_paused{${local.of_consumer}})"
      }
    },
    {
      title = "Our attempts, or the broker's?"
      unit  = "1"
      lines = {
        "attempts at the engine, 95 %" = "histogram_quantile(0.95, sum by (le) (rate(inbox_attempts_bucket{${local.of_consumer}}[10m])))"
        "deliveries by Pub/Sub, 95 %"  = "histogram_quantile(0.95, sum by (le) (rate(inbox_broker_delivery_attempts_bucket{${local.of_consumer}}[10m])))"
      }
    },
    {
      title = "Does the relay keep up?"
      unit  = "1"
      lines = {
        "open"          = "max(inbox_open_messages{${local.of_consumer}})"
        "lanes"         = "max by (state) (inbox_lanes{${local.of_consumer}})"
        "runs a minute" = "60 * sum(rate(inbox_relay_runs_total{${local.of_consumer}}[10m]))"
      }
    },
    {
      title = "What waits at Pub/Sub?"
      unit  = "1"
      lines = {
        "subscription"             = "max by (subscription_id) (pubsub_googleapis_com:subscription_num_undelivered_messages{${local.of_subscriptions}})"
        "dead-lettered in an hour" = "sum by (subscription_id) (increase(pubsub_googleapis_com:subscription_dead_letter_message_count{${local.of_subscriptions}}[1h]))"
      }
    },
    {
      title = "How old is what waits at Pub/Sub?"
      unit  = "s"
      lines = { "subscription" = "max by (subscription_id) (pubsub_googleapis_com:subscription_oldest_unacked_message_age{${local.of_subscriptions}})" }
    },
  ]

  # No metric has a tenant or an aggregate: there is no bound on how many there are. The rows have them.
  by_tenant = <<-EOT
    `inboxctl list --status PARKED --json | jq -r '[.reason, .tenantId, .aggregateType] | @tsv' | sort | uniq -c | sort -rn`
  EOT
}

resource "google_monitoring_dashboard" "inbox" {
  project = var.project_id
  dashboard_json = jsonencode({
    displayName = "Inbox ${var.name} (${local.consumer})"
    mosaicLayout = {
      columns = 12
      tiles = concat([
        for i, question in local.questions : {
          xPos   = (i % 2) * 6
          yPos   = floor(i / 2) * 4
          width  = 6
          height = 4
          widget = {
            title = question.title
            xyChart = {
              dataSets = [
                for name, query in question.lines : merge({
                  plotType           = "LINE"
                  minAlignmentPeriod = "60s"
                  timeSeriesQuery    = { prometheusQuery = query, unitOverride = question.unit }
                  # A line for each value of a label is named by its labels.
                }, length(regexall("by \\((?:reason|type|route|engine|state|subscription_id)", query)) > 0 ? {} : { legendTemplate = name })
              ]
              yAxis = { scale = "LINEAR" }
            }
          }
        }
        ], [{
          xPos   = 0
          yPos   = ceil(length(local.questions) / 2) * 4
          width  = 12
          height = 2
          widget = {
            title = "Which tenants and aggregates are hit?"
            text  = { content = local.by_tenant, format = "MARKDOWN" }
          }
      }])
    }
  })

  depends_on = [google_project_service.api]
}
