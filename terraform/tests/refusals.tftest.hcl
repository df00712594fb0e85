# What does not fit together is refused in the plan. Each run breaks one rule and nothing else.

mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project_id     = "demo"
  region         = "europe-west1"
  enable_apis    = false # not what is tested here
  database       = "projects/demo/instances/i/databases/d"
  source_archive = "tests/testdata/source.zip"
  config         = "{consumer: c, engines: {e: {kind: http, timeout: 10s}}, routes: [{name: r}]}"
  subscriptions  = { orders = {} }
}

run "the_base_is_accepted" {
  command = plan
}

run "an_ack_deadline_below_timeout_and_cold_start" {
  command = plan

  variables {
    subscriptions = { orders = { ack_deadline_seconds = 49 } }
  }
  expect_failures = [google_pubsub_subscription.push]
}

run "attempts_that_an_outage_uses_up" {
  command = plan

  variables {
    subscriptions = { orders = { max_delivery_attempts = 5 } }
  }
  expect_failures = [google_pubsub_subscription.push]
}

run "backoffs_that_an_outage_uses_up" {
  command = plan

  variables {
    subscriptions = { orders = { max_backoff_seconds = 60 } }
  }
  expect_failures = [google_pubsub_subscription.push]
}

run "a_retention_that_ends_before_the_last_attempt" {
  command = plan

  variables {
    subscriptions = { orders = { retention_seconds = 43200 } }
  }
  expect_failures = [google_pubsub_subscription.push]
}

run "a_memory_of_dedupe_shorter_than_the_subscription" {
  command = plan

  variables {
    config = "{consumer: c, engines: {e: {kind: http, timeout: 10s}}, routes: [{name: r}], retention: {waysBack: {subscription: 30d}}}"
  }
  expect_failures = [google_pubsub_subscription.push]
}

run "a_memory_of_dedupe_shorter_than_the_dead_letters" {
  command = plan

  variables {
    config = "{consumer: c, engines: {e: {kind: http, timeout: 10s}}, routes: [{name: r}], retention: {waysBack: {deadLetter: 30d}}}"
  }
  expect_failures = [google_secret_manager_secret_version.config]
}

run "a_memory_of_dedupe_shorter_than_the_ways_back" {
  command = plan

  variables {
    config = "{consumer: c, engines: {e: {kind: http, timeout: 10s}}, routes: [{name: r}], retention: {processed: 68d}}"
  }
  expect_failures = [google_secret_manager_secret_version.config]
}

run "a_payload_kept_longer_than_its_message" {
  command = plan

  variables {
    config = "{consumer: c, engines: {e: {kind: http, timeout: 10s}}, routes: [{name: r}], retention: {payload: 76d}}"
  }
  expect_failures = [google_secret_manager_secret_version.config]
}

run "a_lease_that_a_call_outlasts" {
  command = plan

  variables {
    config = "{consumer: c, engines: {e: {kind: http, timeout: 10s}}, routes: [{name: r}], relay: {lease: 21s}}"
  }
  expect_failures = [google_secret_manager_secret_version.config]
}

run "an_attempt_deadline_below_budget_and_call" {
  command = plan

  variables {
    relay = { attempt_deadline_seconds = 69 }
  }
  expect_failures = [google_cloud_scheduler_job.relay]
}

run "an_attempt_deadline_below_a_longer_budget" {
  command = plan

  variables {
    config = "{consumer: c, engines: {e: {kind: http, timeout: 10s}}, routes: [{name: r}], relay: {budget: 101s}}"
  }
  expect_failures = [google_cloud_scheduler_job.relay]
}

run "an_attempt_deadline_below_a_longer_call" {
  command = plan

  variables {
    config = "{consumer: c, engines: {e: {kind: http, timeout: 61s}}, routes: [{name: r}], relay: {lease: 5m}}"
  }
  expect_failures = [google_cloud_scheduler_job.relay]
}

run "a_timeout_that_cuts_off_a_settling_run" {
  command = plan

  variables {
    relay = { timeout_seconds = 120 }
  }
  expect_failures = [google_cloud_scheduler_job.relay]
}

run "a_duration_that_is_none" {
  command = plan

  variables {
    config = "{consumer: c, engines: {e: {kind: http, timeout: 10s}}, routes: [{name: r}], relay: {lease: 90}}"
  }
  expect_failures = [google_secret_manager_secret_version.config]
}

run "a_secret_that_nobody_gives" {
  command = plan

  variables {
    config = "{consumer: c, engines: {e: {kind: http, auth: {kind: bearer, tokenEnv: TOKEN}}}, routes: [{name: r}]}"
  }
  expect_failures = [google_secret_manager_secret_version.config]
}

run "a_secret_that_nobody_wants" {
  command = plan

  variables {
    engine_secrets = { TOKEN = { secret = "projects/p/secrets/s", version = "1" } }
  }
  expect_failures = [google_secret_manager_secret_version.config]
}

run "a_schema_that_is_not_mounted" {
  command = plan

  variables {
    config = "{consumer: c, engines: {e: {kind: http, timeout: 10s}}, routes: [{name: r, schema: order.json}]}"
  }
  expect_failures = [var.config]
}

run "a_configuration_that_is_none" {
  command = plan

  variables {
    config = "consumer"
  }
  expect_failures = [var.config]
}

run "a_configuration_larger_than_a_secret" {
  command = plan

  variables {
    config = format("{consumer: c, engines: {e: {kind: http}}, routes: [{name: r}]} # %s", join("", [for n in range(1024) : join("", [for m in range(64) : "x"])]))
  }
  expect_failures = [var.config]
}

run "inputs_that_are_refused_1" {
  command = plan

  variables {
    # a database without its instance
    database = "inbox"
    # a secret without its project
    engine_secrets = { TOKEN = { secret = "token", version = "1" } }
    # a variable that the module sets
    environment = { AUTH_MODE = "none" }
    # a name too long for an account
    name = "an-inbox-of-many-words"
    # everybody as operator
    operators = { ledger = ["allUsers"] }
    # a soft deletion that storage does not take
    payloads = { soft_delete_days = 3 }
    # a receive timeout below its own limit
    receive = { timeout_seconds = 9 }
    # an attempt deadline that the scheduler does not take
    relay = { attempt_deadline_seconds = 1801, timeout_seconds = 1900 }
    # a fraction of an instance
    spanner = { processing_units = 150 }
    # an ack deadline that pubsub does not take
    subscriptions = { orders = { ack_deadline_seconds = 601 } }
  }
  expect_failures = [var.database, var.engine_secrets, var.environment, var.name, var.operators, var.payloads, var.receive, var.relay, var.spanner, var.subscriptions]
}

run "inputs_that_are_refused_2" {
  command = plan

  variables {
    # pushes that do not fit into memory
    receive = { memory_mib = 512 }
    # jobs without instances
    relay = { jobs = 3 }
    # autoscaling in the standard edition
    spanner = { autoscaling = { min_processing_units = 1000, max_processing_units = 2000 } }
    # more attempts than pubsub takes
    subscriptions = { orders = { max_delivery_attempts = 101 } }
  }
  expect_failures = [var.receive, var.relay, var.spanner, var.subscriptions]
}

run "inputs_that_are_refused_3" {
  command = plan

  variables {
    # concurrency on a part of a cpu
    receive = { cpu = 0.5 }
    # versions kept longer than spanner can
    spanner = { version_retention = "8d" }
    # a backoff that pubsub does not take
    subscriptions = { orders = { max_backoff_seconds = 601 } }
  }
  expect_failures = [var.receive, var.spanner, var.subscriptions]
}

run "inputs_that_are_refused_4" {
  command = plan

  variables {
    # open doors
    receive = { ingress = "ALLOW_EVERYBODY" }
    # backups kept longer than spanner can
    spanner = { backup_retention_days = 367 }
    # a retention that pubsub does not take
    subscriptions = { orders = { retention_seconds = 2678401 } }
  }
  expect_failures = [var.receive, var.spanner, var.subscriptions]
}

run "inputs_that_are_refused_5" {
  command = plan

  variables {
    # a way out that there is not
    receive = { vpc = { network = "n", subnetwork = "s", egress = "EVERYWHERE" } }
    relay   = { vpc = { network = "n", subnetwork = "s", egress = "EVERYWHERE" } }
    # a retention of an existing topic
    subscriptions = { orders = { topic = "projects/p/topics/t", topic_retention_seconds = 600 } }
  }
  expect_failures = [var.receive, var.relay, var.subscriptions]
}

run "inputs_that_are_refused_6" {
  command = plan

  variables {
    # a topic without its project
    subscriptions = { orders = { topic = "orders" } }
  }
  expect_failures = [var.subscriptions]
}

run "inputs_that_are_refused_7" {
  command = plan

  variables {
    # a subscription named as the dead letters
    subscriptions = { dead-letter = {} }
  }
  expect_failures = [var.subscriptions]
}
