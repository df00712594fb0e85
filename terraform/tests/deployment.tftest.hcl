# What an apply with nothing but the required inputs deploys. Numbers are those of Google's documentation, or of the
# functions' own: the module's literals are what is tested.

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

# C067, C069. https://cloud.google.com/pubsub/docs/subscription-properties
run "subscriptions_outlast_an_outage" {
  command = apply

  assert {
    condition     = alltrue([for s in values(google_pubsub_subscription.push) : s.expiration_policy[0].ttl == ""])
    error_message = "Without an empty ttl a subscription that is idle for 31 days is deleted."
  }
  assert {
    condition     = alltrue([for s in values(google_pubsub_subscription.push) : s.message_retention_duration == "${31 * 24 * 3600}s"])
    error_message = "Retention is written out, and Pub/Sub's longest."
  }
  assert {
    # RetryPolicy: each from 0 to 600 s; the first at least Pub/Sub's own default.
    condition = alltrue([for s in values(google_pubsub_subscription.push) :
      tonumber(trimsuffix(s.retry_policy[0].minimum_backoff, "s")) >= 10 &&
    tonumber(trimsuffix(s.retry_policy[0].maximum_backoff, "s")) == 600])
    error_message = "What is refused comes back after 10 s to 600 s."
  }
  assert {
    # Waits of 10, 20, 40, 80, 160 and 320 s, then 600 s each: 99 waits between 100 deliveries.
    condition     = output.outage_hours["orders"] == floor((10 + 20 + 40 + 80 + 160 + 320 + 93 * 600) / 360) / 10 && output.outage_hours["orders"] >= 12
    error_message = "An outage of half a day dead-letters nothing."
  }
  assert {
    # 8 s is the receive function's own limit (internal/receiver), 10 s its shutdown: Cloud Run's SIGKILL.
    condition = alltrue([for s in values(google_pubsub_subscription.push) :
    s.ack_deadline_seconds >= 8 + 10 + 20 && s.ack_deadline_seconds <= 600])
    error_message = "The ack deadline holds the slowest answer after a cold start, and is one that Pub/Sub takes."
  }
  assert {
    condition     = alltrue([for s in values(google_pubsub_subscription.push) : s.enable_message_ordering == false && s.enable_exactly_once_delivery != true && s.retain_acked_messages == false])
    error_message = "No ordering (A17), no exactly-once (it is for pull only), nothing retained that costs unasked."
  }
  assert {
    condition     = keys(google_pubsub_topic.events) == ["orders"] && google_pubsub_subscription.push["invoices"].topic == "projects/other/topics/invoices"
    error_message = "A topic is made where none is given, and an existing one is left alone."
  }
  assert {
    condition     = google_pubsub_topic.events["orders"].message_retention_duration == null
    error_message = "A topic keeps nothing unasked."
  }
}

# C068, C072.
run "everybody_may_do_what_they_must_and_nothing_else" {
  command = apply

  assert {
    condition = length(distinct([
      google_service_account.receive.account_id, google_service_account.relay.account_id,
      google_service_account.push.account_id, google_service_account.scheduler.account_id,
    ])) == 4
    error_message = "Four identities."
  }
  assert {
    condition = alltrue([for s in values(google_pubsub_subscription.push) :
      s.push_config[0].oidc_token[0].service_account_email == "inbox-push@demo.iam.gserviceaccount.com" &&
      s.push_config[0].oidc_token[0].audience == module.receive.environment.PUSH_AUDIENCE &&
      s.push_config[0].push_endpoint == module.receive.environment.PUSH_AUDIENCE &&
    length(s.push_config[0].no_wrapper) == 0])
    error_message = "Pushes are wrapped, and have the bare e-mail of the push identity and the audience that the function expects."
  }
  assert {
    condition     = module.receive.environment.PUSH_SERVICE_ACCOUNTS == "inbox-push@demo.iam.gserviceaccount.com" && module.relay.environment.RELAY_SERVICE_ACCOUNTS == "inbox-scheduler@demo.iam.gserviceaccount.com"
    error_message = "Each function lets in its own caller."
  }
  assert {
    condition     = module.receive.environment.PUSH_AUDIENCE != module.relay.environment.RELAY_AUDIENCE && module.receive.environment.AUTH_MODE == "edge" && module.relay.environment.AUTH_MODE == "edge"
    error_message = "A token for one function is none for the other, and the functions look at it too."
  }
  assert {
    condition = (google_cloud_run_v2_service_iam_member.push.role == "roles/run.invoker" &&
      google_cloud_run_v2_service_iam_member.push.member == "serviceAccount:inbox-push@demo.iam.gserviceaccount.com" &&
    google_cloud_run_v2_service_iam_member.push.name == "inbox-receive")
    error_message = "The push identity may call the receive function: on its Cloud Run service."
  }
  assert {
    condition = (google_cloud_run_v2_service_iam_member.scheduler.role == "roles/run.invoker" &&
      google_cloud_run_v2_service_iam_member.scheduler.member == "serviceAccount:inbox-scheduler@demo.iam.gserviceaccount.com" &&
    google_cloud_run_v2_service_iam_member.scheduler.name == "inbox-relay")
    error_message = "The scheduler's identity may call the relay: on its Cloud Run service."
  }
  assert {
    condition = (module.receive.settings.service_account == "inbox-receive@demo.iam.gserviceaccount.com" &&
    module.relay.settings.service_account == "inbox-relay@demo.iam.gserviceaccount.com")
    error_message = "Each function has its own account."
  }
  assert {
    # databaseUser reads and writes rows; databaseAdmin alone changes schemas.
    condition     = google_spanner_database_iam_member.receive.role == "roles/spanner.databaseUser" && google_spanner_database_iam_member.relay.role == "roles/spanner.databaseUser"
    error_message = "Functions read and write rows, and change no schema."
  }
  assert {
    condition = (google_project_iam_custom_role.receive_payloads.permissions == toset(["storage.objects.create", "storage.objects.get", "storage.objects.delete"]) &&
    google_project_iam_custom_role.relay_payloads.permissions == toset(["storage.objects.get", "storage.objects.list", "storage.objects.update"]))
    error_message = "Receive puts payloads and replaces them by a new generation; the relay reads them, learns that one is gone, and sets their custom time."
  }
  assert {
    condition = (google_storage_bucket_iam_member.receive.role == google_project_iam_custom_role.receive_payloads.id &&
      google_storage_bucket_iam_member.receive.member == "serviceAccount:inbox-receive@demo.iam.gserviceaccount.com" &&
      google_storage_bucket_iam_member.relay.role == google_project_iam_custom_role.relay_payloads.id &&
    google_storage_bucket_iam_member.relay.member == "serviceAccount:inbox-relay@demo.iam.gserviceaccount.com")
    error_message = "Each function has just that on the payload bucket."
  }
  assert {
    condition     = length(google_spanner_database_iam_member.ledger_role) == 0 && length(google_spanner_database_iam_member.payloads) == 0
    error_message = "No person is let in unasked."
  }
  assert {
    # Who may not list is answered 403 for an object that is not there, as for one that is forbidden.
    condition = (google_storage_bucket_iam_member.relay_claims["sender-reports"].role == "roles/storage.objectViewer" &&
    google_storage_bucket_iam_member.relay_claims["sender-reports"].member == "serviceAccount:inbox-relay@demo.iam.gserviceaccount.com")
    error_message = "The relay alone reads senders' objects, and learns which are gone."
  }
  assert {
    condition = (keys(google_secret_manager_secret_iam_member.config) == ["receive", "relay"] &&
      [for m in values(google_secret_manager_secret_iam_member.engine) : m.member] == ["serviceAccount:inbox-relay@demo.iam.gserviceaccount.com"] &&
    alltrue([for m in concat(values(google_secret_manager_secret_iam_member.config), values(google_secret_manager_secret_iam_member.engine)) : m.role == "roles/secretmanager.secretAccessor"]))
    error_message = "Both read the configuration, and the relay alone the engines' secrets."
  }
  assert {
    condition     = toset([for m in concat(values(google_project_iam_member.receive_telemetry), values(google_project_iam_member.relay_telemetry)) : m.role]) == toset(["roles/telemetry.metricsWriter", "roles/telemetry.tracesWriter"])
    error_message = "In the project itself functions write metrics and traces, and nothing else."
  }
  assert {
    condition = (google_project_iam_member.build["logs"].role == "roles/logging.logWriter" &&
      google_project_iam_member.build["copy"].condition[0].expression == "resource.name.startsWith(\"projects/_/buckets/gcf-v2-sources-123456789012-\")" &&
    google_artifact_registry_repository_iam_member.build[0].role == "roles/artifactregistry.writer")
    error_message = "The build reads sources of functions and writes logs and images."
  }
  assert {
    condition     = length(google_service_account_iam_member.push_tokens) == 0
    error_message = "Pub/Sub's agent makes no tokens unasked: only old projects need it."
  }
  assert {
    condition = alltrue([for m in [
      google_cloud_run_v2_service_iam_member.push.member, google_cloud_run_v2_service_iam_member.scheduler.member,
      google_pubsub_topic_iam_member.dead_letter_publisher.member, google_spanner_database_iam_member.receive.member,
      google_spanner_database_iam_member.relay.member, google_storage_bucket_iam_member.receive.member,
      google_storage_bucket_iam_member.relay.member,
    ] : startswith(m, "serviceAccount:")])
    error_message = "Nothing is granted to everybody."
  }
  assert {
    condition     = module.receive.settings.ingress == "ALLOW_INTERNAL_ONLY" && module.relay.settings.ingress == "ALLOW_INTERNAL_ONLY"
    error_message = "Nobody outside reaches the functions at all."
  }
}

run "functions_have_explicit_limits" {
  command = apply

  assert {
    condition     = module.receive.settings.entry_point == "Receive" && module.relay.settings.entry_point == "Relay"
    error_message = "Both entry points of one source."
  }
  assert {
    condition     = module.receive.settings.source_object == module.relay.settings.source_object && module.receive.settings.source_object == "source-${filesha256("tests/testdata/source.zip")}.zip"
    error_message = "One archive, named by its content."
  }
  assert {
    # Google's default concurrency for a function is 1: an instance for each push.
    condition     = module.receive.settings.concurrency > 1 && tonumber(module.receive.settings.cpu) >= 1
    error_message = "Several pushes share an instance, which needs a whole CPU."
  }
  assert {
    # Four times a 10 MB message in base64, for each push at a time (bench/results.md).
    condition     = tonumber(trimsuffix(module.receive.settings.memory, "Mi")) > module.receive.settings.concurrency * 4 * 10 * 4 / 3
    error_message = "The largest messages fit, all at once."
  }
  assert {
    condition     = module.receive.settings.timeout_seconds > 8 && alltrue([for s in values(google_pubsub_subscription.push) : module.receive.settings.timeout_seconds < s.ack_deadline_seconds])
    error_message = "The function's own 8 s < its timeout < the ack deadline."
  }
  assert {
    condition     = module.relay.settings.concurrency == 1 && module.relay.settings.max_instances > length(google_cloud_scheduler_job.relay)
    error_message = "A run has an instance, and a late one another."
  }
  assert {
    condition = (module.receive.environment.INBOX_CONFIG_FILE == "/etc/inbox/inbox.yaml" && keys(module.receive.mounted) == ["/etc/inbox/inbox.yaml"] &&
    module.receive.mounted == module.relay.mounted)
    error_message = "Both read the configuration where it is mounted, the same version of it."
  }
  assert {
    condition     = module.relay.secret_environment == { WORK_ORDERS_TOKEN = "projects/demo/secrets/work-orders-token/versions/3" } && module.receive.secret_environment == {}
    error_message = "The relay has the engines' secrets by the names of the configuration, in a fixed version; receive has none."
  }
  assert {
    condition = alltrue([for e in [module.receive.environment, module.relay.environment] :
    e.SPANNER_DATABASE == "projects/demo/instances/inbox/databases/inbox" && e.PAYLOAD_BUCKET == "demo-inbox-payloads" && e.GOOGLE_CLOUD_PROJECT == "demo"])
    error_message = "Both work on the same database and bucket."
  }
  assert {
    condition = alltrue([for f in [module.receive, module.relay] :
    f.environment.GOMEMLIMIT == "${floor(tonumber(trimsuffix(f.settings.memory, "Mi")) * 0.85)}MiB"])
    error_message = "Go's memory limit is 85 % of the instance's memory."
  }
  assert {
    # Google's OTLP endpoint. Without one nothing is exported, and every alert on a gauge is blind.
    condition     = alltrue([for e in [module.receive.environment, module.relay.environment] : e.OTEL_EXPORTER_OTLP_ENDPOINT == "https://telemetry.googleapis.com"])
    error_message = "Both export metrics and traces."
  }
}

# C073. https://cloud.google.com/scheduler/docs/reference/rest/v1/projects.locations.jobs
run "the_scheduler_waits_for_a_run" {
  command = apply

  assert {
    # A budget of 50 s (docs/configuration.md), an engine's timeout of 10 s in testdata/inbox.yaml.
    condition = alltrue([for j in google_cloud_scheduler_job.relay :
      tonumber(trimsuffix(j.attempt_deadline, "s")) > 50 + 10 && tonumber(trimsuffix(j.attempt_deadline, "s")) < module.relay.settings.timeout_seconds &&
    tonumber(trimsuffix(j.attempt_deadline, "s")) <= 1800])
    error_message = "Budget and longest call < attempt deadline < the function's timeout."
  }
  assert {
    condition     = alltrue([for j in google_cloud_scheduler_job.relay : j.time_zone == "Etc/UTC" && j.schedule == "* * * * *"])
    error_message = "Every minute, in UTC."
  }
  assert {
    condition = alltrue([for j in google_cloud_scheduler_job.relay : j.retry_config[0].retry_count <= 1 && j.retry_config[0].min_backoff_duration != null &&
    j.retry_config[0].max_backoff_duration != null && j.retry_config[0].max_doublings != null && j.retry_config[0].max_retry_duration != null])
    error_message = "One retry at most, and nothing of it is left to a default, which a first apply does not set."
  }
  assert {
    condition = alltrue([for j in google_cloud_scheduler_job.relay :
      j.http_target[0].oidc_token[0].audience == module.relay.environment.RELAY_AUDIENCE && startswith(j.http_target[0].uri, module.relay.environment.RELAY_AUDIENCE) &&
      j.http_target[0].oidc_token[0].service_account_email == "inbox-scheduler@demo.iam.gserviceaccount.com" &&
    length(j.http_target[0].oauth_token) == 0 && j.http_target[0].http_method == "POST"])
    error_message = "An OIDC token of the scheduler's identity, with the audience that the function expects."
  }
}

run "data_is_protected" {
  command = apply

  assert {
    condition     = google_storage_bucket.payloads.uniform_bucket_level_access == true && google_storage_bucket.payloads.public_access_prevention == "enforced" && google_storage_bucket.payloads.force_destroy == false
    error_message = "Payloads are private, and are not destroyed with the bucket."
  }
  assert {
    condition     = google_storage_bucket.source.uniform_bucket_level_access == true && google_storage_bucket.source.public_access_prevention == "enforced"
    error_message = "The source is private."
  }
  assert {
    # retention.payload is 14d (docs/configuration.md). Age, prefix or any other condition would hit what is open.
    condition = (length(google_storage_bucket.payloads.lifecycle_rule) == 1 &&
      one(google_storage_bucket.payloads.lifecycle_rule[0].condition).days_since_custom_time == 14 &&
      coalesce(one(google_storage_bucket.payloads.lifecycle_rule[0].condition).age, 0) == 0 &&
    length(google_storage_bucket.payloads.retention_policy) == 0)
    error_message = "Objects go by custom time alone, when retention.payload says so."
  }
  assert {
    condition     = google_storage_bucket.payloads.soft_delete_policy[0].retention_duration_seconds == 7 * 86400
    error_message = "Soft deletion is decided, not inherited."
  }
  assert {
    condition     = startswith(google_secret_manager_secret_version.config.secret_data, "consumer: work-order-service") && google_secret_manager_secret_version.config.deletion_policy == "ABANDON"
    error_message = "The configuration is a secret's version, and earlier ones stay for earlier revisions."
  }
}

# https://cloud.google.com/spanner/docs/use-pitr, .../backup/create-backup-schedules
run "the_database_is_protected" {
  command = apply

  module {
    source = "./modules/database"
  }
  variables {
    name   = "inbox"
    config = "regional-europe-west1"
  }

  assert {
    condition     = google_spanner_database.this.deletion_protection == true && google_spanner_database.this.enable_drop_protection == true && google_spanner_instance.this[0].force_destroy == false
    error_message = "Neither Terraform nor anybody else drops the database, or its backups."
  }
  assert {
    condition     = google_spanner_database.this.default_time_zone == "UTC"
    error_message = "The default would be America/Los_Angeles."
  }
  assert {
    condition     = google_spanner_database.this.ddl == null
    error_message = "Terraform makes no tables."
  }
  assert {
    condition     = google_spanner_database.this.version_retention_period == "1h"
    error_message = "Point-in-time recovery, within 1h to 7d."
  }
  assert {
    # A backup is kept for at most 366 days.
    condition     = google_spanner_backup_schedule.this.retention_duration == "${7 * 86400}s" && length(google_spanner_backup_schedule.this.full_backup_spec) == 1 && google_spanner_backup_schedule.this.spec[0].cron_spec[0].text == "0 2 * * *"
    error_message = "A full backup every day, kept for a week."
  }
  assert {
    condition     = google_spanner_instance.this[0].default_backup_schedule_type == "NONE"
    error_message = "One schedule, not two."
  }
}
