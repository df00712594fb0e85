# Where and what

variable "project_id" {
  description = "The project of everything that this module makes."
  type        = string
}

variable "region" {
  description = "Region of functions, scheduler, buckets and secrets, such as europe-west1."
  type        = string
}

variable "name" {
  description = "First part of every name. Two instances of the module in a project need two names, neither of which begins with the other and a hyphen: alerts tell subscriptions apart by it. Changing it makes everything anew."
  type        = string
  default     = "inbox"

  validation {
    # A service account's id has at most 30 characters, and the longest ending here is "-scheduler".
    condition     = can(regex("^[a-z][a-z0-9-]{1,18}[a-z0-9]$", var.name))
    error_message = "name must have 3 to 20 characters: lower-case letters, digits and hyphens, a letter first and no hyphen last."
  }
}

variable "labels" {
  description = "Labels on everything that takes them."
  type        = map(string)
  default     = {}
}

variable "enable_apis" {
  description = "Whether the module enables the APIs that it needs. They stay enabled when it is destroyed."
  type        = bool
  default     = true
}

variable "ephemeral" {
  description = "Whether everything may be deleted with all that is in it, messages included: no drop protection, buckets and instance are emptied. For trials only."
  type        = bool
  default     = false
}

variable "source_archive" {
  description = "Path of the functions' source, as `make dist` writes it. Its content names the object in the source bucket, so that changed source is deployed and the same source is not."
  type        = string
}

variable "config" {
  description = "Text of the inbox's configuration, such as file(\"inbox.yaml\"); see docs/configuration.md. Deadlines, leases and retention times are read from it and held against what is set here."
  type        = string

  validation {
    condition     = can(yamldecode(var.config).consumer) && can(keys(yamldecode(var.config).engines)) && can(yamldecode(var.config).routes[0])
    error_message = "config must be YAML with consumer, engines and routes; `inboxctl config check` says more."
  }
  validation {
    # Secret Manager's limit for one version. Base64 turns 65,536 bytes into 87,384 characters.
    condition     = length(base64encode(var.config)) <= 87384
    error_message = "config must have at most 64 KiB, or Secret Manager does not take it."
  }
  validation {
    condition     = alltrue([for r in try(yamldecode(var.config).routes, []) : !can(regex("", r.schema))])
    error_message = "A route's schema is a path, and only the configuration itself is mounted: write the schema into it."
  }
}

variable "engine_secrets" {
  description = "The secrets that the configuration names by passwordEnv and tokenEnv: environment variable => secret (projects/P/secrets/S) and version (a number; a new one is a new revision). Values never go through Terraform."
  type = map(object({
    secret  = string
    version = string
  }))
  default = {}

  validation {
    condition     = alltrue([for s in values(var.engine_secrets) : can(regex("^projects/[^/]+/secrets/[^/]+$", s.secret))])
    error_message = "A secret is named as projects/P/secrets/S."
  }
}

variable "environment" {
  description = "Further environment variables of both functions; see docs/configuration.md."
  type        = map(string)
  default     = {}

  validation {
    condition = length(setintersection(keys(var.environment), [
      "INBOX_CONFIG", "INBOX_CONFIG_FILE", "SPANNER_DATABASE", "PAYLOAD_BUCKET", "AUTH_MODE", "PUSH_AUDIENCE",
      "PUSH_SERVICE_ACCOUNTS", "RELAY_AUDIENCE", "RELAY_SERVICE_ACCOUNTS", "GOOGLE_CLOUD_PROJECT", "K_SERVICE", "K_REVISION",
    ])) == 0
    error_message = "The module sets these variables itself, or Cloud Run does."
  }
}

# Pub/Sub

variable "subscriptions" {
  description = <<-EOT
    Push subscriptions, by a name that stays (it is part of the resources' names; a new one is a new subscription, which has none of the old one's messages).

    - topic: full name of an existing topic, projects/P/topics/T. Without it a topic NAME-KEY is made.
    - filter: which messages are delivered, in Pub/Sub's filter language, at most 256 bytes. What does not match is acknowledged by Pub/Sub and gone. It cannot be changed later.
    - ack_deadline_seconds: how long Pub/Sub waits for an answer, 10 to 600. It is the push request's timeout too.
    - retention_seconds: how long an unacknowledged message is kept, 600 to 2678400 (31 days).
    - min_backoff_seconds, max_backoff_seconds: wait between two deliveries of a message, 0 to 600.
    - max_delivery_attempts: deliveries before a message goes to the dead-letter topic, 5 to 100.
    - outage_hours: settings under which an outage of so many hours would dead-letter healthy messages are refused.
    - retain_acked: whether acknowledged messages are kept for retention_seconds, for a seek. Costs storage.
    - topic_retention_seconds: how long a topic made here keeps messages for a seek, 600 to 2678400; without it not at all. Costs storage.
  EOT
  type = map(object({
    topic                   = optional(string)
    filter                  = optional(string)
    ack_deadline_seconds    = optional(number, 60)
    retention_seconds       = optional(number, 2678400)
    min_backoff_seconds     = optional(number, 10)
    max_backoff_seconds     = optional(number, 600)
    max_delivery_attempts   = optional(number, 100)
    outage_hours            = optional(number, 12)
    retain_acked            = optional(bool, false)
    topic_retention_seconds = optional(number)
  }))

  validation {
    condition     = alltrue([for k in keys(var.subscriptions) : can(regex("^[a-z][a-z0-9-]{0,60}[a-z0-9]$", k)) && k != "dead-letter"])
    error_message = "A subscription's name has lower-case letters, digits and hyphens, a letter first and no hyphen last; dead-letter is taken."
  }
  validation {
    condition     = alltrue([for s in values(var.subscriptions) : s.topic == null || can(regex("^projects/[^/]+/topics/[^/]+$", s.topic))])
    error_message = "An existing topic is named as projects/P/topics/T."
  }
  validation {
    condition     = alltrue([for s in values(var.subscriptions) : s.topic == null || s.topic_retention_seconds == null])
    error_message = "topic_retention_seconds is of topics made here; an existing topic has its own."
  }
  validation {
    condition     = alltrue([for s in values(var.subscriptions) : s.ack_deadline_seconds >= 10 && s.ack_deadline_seconds <= 600])
    error_message = "ack_deadline_seconds must be from 10 to 600."
  }
  validation {
    condition = alltrue([for s in values(var.subscriptions) : s.retention_seconds >= 600 && s.retention_seconds <= 2678400 &&
    (s.topic_retention_seconds == null ? true : s.topic_retention_seconds >= 600 && s.topic_retention_seconds <= 2678400)])
    error_message = "retention_seconds and topic_retention_seconds must be from 600 (10 minutes) to 2678400 (31 days)."
  }
  validation {
    condition = alltrue([for s in values(var.subscriptions) : s.min_backoff_seconds >= 0 && s.max_backoff_seconds <= 600 &&
    s.min_backoff_seconds <= s.max_backoff_seconds])
    error_message = "Backoffs must be from 0 to 600 seconds, the smaller one first."
  }
  validation {
    condition     = alltrue([for s in values(var.subscriptions) : s.max_delivery_attempts >= 5 && s.max_delivery_attempts <= 100])
    error_message = "max_delivery_attempts must be from 5 to 100."
  }
}

variable "pubsub_agent_token_creator" {
  description = "Whether Pub/Sub's service agent gets roles/iam.serviceAccountTokenCreator on the push identity. Only projects made before 8 April 2021 need it."
  type        = bool
  default     = false
}

# Functions

variable "runtime" {
  description = "Runtime of both functions. Its Go must not be older than the go line of go.mod."
  type        = string
  default     = "go126"
}

variable "receive" {
  description = <<-EOT
    The receive function.

    - max_instances, concurrency: their product is how many pushes are answered at the same time, at most 1000 an instance.
    - min_instances: instances kept warm; each costs all day.
    - memory_mib, cpu: of one instance. Memory must hold `concurrency` pushes of the largest kind; a concurrency above 1 needs a whole CPU.
    - timeout_seconds: after which Cloud Run ends a request. The function itself answers within 8 seconds.
    - ingress: ALLOW_INTERNAL_ONLY lets in Pub/Sub of this project (or VPC perimeter) and nobody else; ALLOW_ALL leaves it to IAM alone.
    - vpc: network and subnetwork for what it sends; egress PRIVATE_RANGES_ONLY or ALL_TRAFFIC.
  EOT
  type = object({
    max_instances   = optional(number, 20)
    min_instances   = optional(number, 0)
    concurrency     = optional(number, 16)
    memory_mib      = optional(number, 1024)
    cpu             = optional(number, 1)
    timeout_seconds = optional(number, 30)
    ingress         = optional(string, "ALLOW_INTERNAL_ONLY")
    vpc = optional(object({
      network    = string
      subnetwork = string
      egress     = optional(string, "PRIVATE_RANGES_ONLY")
    }))
  })
  default = {}

  validation {
    # 8 s for the answer, and 2 s for the way there and back.
    condition     = var.receive.timeout_seconds >= 10 && var.receive.timeout_seconds <= 3600
    error_message = "receive.timeout_seconds must be from 10 (the function answers within 8 seconds) to 3600."
  }
  validation {
    condition     = var.receive.concurrency >= 1 && var.receive.concurrency <= 1000 && (var.receive.concurrency == 1 || var.receive.cpu >= 1)
    error_message = "receive.concurrency must be from 1 to 1000, and 1 where receive.cpu is below 1."
  }
  validation {
    # The largest message has 10 MB, in base64 13.4 MB, and a receive holds at most four times its body (bench/results.md).
    # 128 MiB are for the process itself.
    condition     = var.receive.memory_mib >= 128 + var.receive.concurrency * 4 * 13.4 * 1000 * 1000 / 1048576
    error_message = "receive.memory_mib does not hold receive.concurrency pushes of 10 MB: 52 MiB each, and 128 MiB for the process."
  }
  validation {
    condition     = var.receive.max_instances >= 1 && var.receive.min_instances >= 0 && var.receive.min_instances <= var.receive.max_instances
    error_message = "receive.max_instances must be at least 1, and receive.min_instances not above it."
  }
  validation {
    condition     = contains(["ALLOW_INTERNAL_ONLY", "ALLOW_INTERNAL_AND_GCLB", "ALLOW_ALL"], var.receive.ingress)
    error_message = "receive.ingress must be ALLOW_INTERNAL_ONLY, ALLOW_INTERNAL_AND_GCLB or ALLOW_ALL."
  }
  validation {
    condition     = var.receive.vpc == null ? true : contains(["PRIVATE_RANGES_ONLY", "ALL_TRAFFIC"], var.receive.vpc.egress)
    error_message = "receive.vpc.egress must be PRIVATE_RANGES_ONLY or ALL_TRAFFIC."
  }
}

variable "relay" {
  description = <<-EOT
    The relay function and its schedule.

    - jobs: scheduler jobs, each a run a minute; runs share the work. More jobs, more calls at the same time (relay.parallel of the configuration, times jobs).
    - max_instances: one instance holds one run, so it must be above jobs: a late run overlaps the next.
    - schedule: unix cron, in UTC. The floor is a minute.
    - attempt_deadline_seconds: how long the scheduler waits for a run, 15 to 1800.
    - timeout_seconds: after which Cloud Run ends a run. Above the attempt deadline, so that no run is cut off while it settles.
    - memory_mib, cpu, min_instances, ingress, vpc: as for receive. The scheduler counts as internal.
  EOT
  type = object({
    jobs                     = optional(number, 1)
    max_instances            = optional(number, 3)
    min_instances            = optional(number, 0)
    memory_mib               = optional(number, 1024)
    cpu                      = optional(number, 1)
    schedule                 = optional(string, "* * * * *")
    attempt_deadline_seconds = optional(number, 120)
    timeout_seconds          = optional(number, 180)
    ingress                  = optional(string, "ALLOW_INTERNAL_ONLY")
    vpc = optional(object({
      network    = string
      subnetwork = string
      egress     = optional(string, "PRIVATE_RANGES_ONLY")
    }))
  })
  default = {}

  validation {
    condition     = var.relay.jobs >= 1 && var.relay.max_instances > var.relay.jobs && var.relay.min_instances <= var.relay.max_instances
    error_message = "relay.max_instances must be above relay.jobs (a late run overlaps the next), and relay.min_instances not above it."
  }
  validation {
    # The alerts count runs over ten minutes.
    condition     = can(regex("^\\*(/[1-5])? \\* \\* \\* \\*$", var.relay.schedule))
    error_message = "relay.schedule must be every minute (* * * * *) up to every five (*/5 * * * *): the alerts take a longer silence for a failure."
  }
  validation {
    condition     = var.relay.attempt_deadline_seconds >= 15 && var.relay.attempt_deadline_seconds <= 1800
    error_message = "relay.attempt_deadline_seconds must be from 15 to 1800."
  }
  validation {
    condition     = var.relay.timeout_seconds <= 3600
    error_message = "relay.timeout_seconds must be at most 3600."
  }
  validation {
    condition     = contains(["ALLOW_INTERNAL_ONLY", "ALLOW_INTERNAL_AND_GCLB", "ALLOW_ALL"], var.relay.ingress)
    error_message = "relay.ingress must be ALLOW_INTERNAL_ONLY, ALLOW_INTERNAL_AND_GCLB or ALLOW_ALL."
  }
  validation {
    condition     = var.relay.vpc == null ? true : contains(["PRIVATE_RANGES_ONLY", "ALL_TRAFFIC"], var.relay.vpc.egress)
    error_message = "relay.vpc.egress must be PRIVATE_RANGES_ONLY or ALL_TRAFFIC."
  }
}

variable "build" {
  description = <<-EOT
    How the functions are built.

    - service_account: e-mail of an existing account for Cloud Build. Without it one is made, with the roles that a build needs.
    - repository: full name of an existing Docker repository, projects/P/locations/L/repositories/R. Without it one is made.
  EOT
  type = object({
    service_account = optional(string)
    repository      = optional(string)
  })
  default = {}
}

# Storage

variable "database" {
  description = "Full name of an existing database, projects/P/instances/I/databases/D: of another instance of this module, or your own. Without it one is made as `spanner` says. Several consumers can share one."
  type        = string
  default     = null

  validation {
    condition     = var.database == null ? true : can(regex("^projects/[^/]+/instances/[^/]+/databases/[^/]+$", var.database))
    error_message = "database is named as projects/P/instances/I/databases/D."
  }
}

variable "spanner" {
  description = <<-EOT
    The database that is made. See modules/database.

    - instance: id of an existing instance in this project. Without it one is made, with config, edition and processing_units.
    - config: instance configuration, such as regional-europe-west1 (the default: that of region).
    - edition: STANDARD, ENTERPRISE or ENTERPRISE_PLUS. Autoscaling needs ENTERPRISE.
    - processing_units: size, 100 to 1000 in hundreds, beyond in thousands.
    - autoscaling: instead of a fixed size, from min to max processing units (multiples of 1000) at a CPU share in percent.
    - version_retention: how far back a point-in-time read can go, 1h to 7d. Short, because the relay's index scans pass over what was deleted within it.
    - backup_schedule, backup_retention_days: unix cron in UTC, at least 12 hours apart; 1 to 366 days. Each backup is a full one, and is paid for.
  EOT
  type = object({
    instance         = optional(string)
    config           = optional(string)
    edition          = optional(string, "STANDARD")
    processing_units = optional(number, 100)
    autoscaling = optional(object({
      min_processing_units = number
      max_processing_units = number
      cpu_percent          = optional(number, 65)
    }))
    version_retention     = optional(string, "1h")
    backup_schedule       = optional(string, "0 2 * * *")
    backup_retention_days = optional(number, 7)
  })
  default = {}

  validation {
    condition = (var.spanner.processing_units >= 100 &&
    var.spanner.processing_units % (var.spanner.processing_units < 1000 ? 100 : 1000) == 0)
    error_message = "spanner.processing_units must be 100 to 900 in hundreds, or thousands."
  }
  validation {
    condition = var.spanner.autoscaling == null ? true : (var.spanner.autoscaling.min_processing_units % 1000 == 0 &&
      var.spanner.autoscaling.max_processing_units % 1000 == 0 && var.spanner.autoscaling.min_processing_units >= 1000 &&
    var.spanner.autoscaling.max_processing_units >= var.spanner.autoscaling.min_processing_units && var.spanner.edition != "STANDARD")
    error_message = "spanner.autoscaling goes in thousands, from min to max, and needs the edition ENTERPRISE or ENTERPRISE_PLUS."
  }
  validation {
    condition     = can(regex("^([1-9]|1[0-9]|2[0-4])h$|^[1-7]d$", var.spanner.version_retention))
    error_message = "spanner.version_retention must be 1h to 24h, or 1d to 7d."
  }
  validation {
    condition     = var.spanner.backup_retention_days >= 1 && var.spanner.backup_retention_days <= 366
    error_message = "spanner.backup_retention_days must be from 1 to 366."
  }
}

variable "payloads" {
  description = <<-EOT
    The bucket for large payloads.

    - soft_delete_days: how long a deleted object can be restored, 0 (not at all) or 7 to 90. A payload is really gone only so much later than retention.payload says: set 0 where that matters more than undoing a mistake.
  EOT
  type = object({
    soft_delete_days = optional(number, 7)
  })
  default = {}

  validation {
    condition     = var.payloads.soft_delete_days == 0 || (var.payloads.soft_delete_days >= 7 && var.payloads.soft_delete_days <= 90)
    error_message = "payloads.soft_delete_days must be 0, or from 7 to 90."
  }
}

variable "kms_key" {
  description = "Full name of a key for data at rest: topics, database, buckets, secrets, images. In region. Google's service agents must be allowed to use it: modules/kms_grants. Without it Google's keys are used."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key == null ? true : can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.kms_key))
    error_message = "kms_key is named as projects/P/locations/L/keyRings/R/cryptoKeys/K."
  }
}

# People

variable "operators" {
  description = <<-EOT
    Who may work on messages with inboxctl, as members such as group:inbox@example.com.

    - ledger: everything but payloads: list, show and reopen, with --database-role inbox_ledger. terraform/operator-roles.sql makes the role.
    - payloads: all of the database and the payload bucket: also show --payload, reroute, drain and reconcile. drain needs roles/pubsub.subscriber on its subscription, too.
  EOT
  type = object({
    ledger   = optional(set(string), [])
    payloads = optional(set(string), [])
  })
  default = {}

  validation {
    condition = alltrue([for m in setunion(var.operators.ledger, var.operators.payloads) :
    can(regex("^(user|group|serviceAccount|domain|principal|principalSet):", m)) && !contains(["allUsers", "allAuthenticatedUsers"], m)])
    error_message = "An operator is a member such as user:ann@example.com or group:inbox@example.com."
  }
}

variable "alerts" {
  description = <<-EOT
    When to wake whom.

    - notification_channels: full names of channels; without any, incidents are opened and nobody is told.
    - oldest_open_seconds: age of the oldest open message that is too much. Not below what an engine's outage may last.
    - oldest_unacked_seconds: age of the oldest message that the inbox has not taken.
    - backlog_messages: messages that wait at Pub/Sub.
    - redelivery_percent: share of deliveries that are refused or repeated.
    - disabled: names of alerts that are not wanted; see alerts.tf.
    - runbook_url: where docs/operations.md is; an alert's name is added as anchor.
  EOT
  type = object({
    notification_channels  = optional(list(string), [])
    oldest_open_seconds    = optional(number, 3600)
    oldest_unacked_seconds = optional(number, 600)
    backlog_messages       = optional(number, 10000)
    redelivery_percent     = optional(number, 10)
    disabled               = optional(set(string), [])
    runbook_url            = optional(string, "https://github.com/pubsub-inbox/pubsub-inbox/blob/main/docs/operations.md")
  })
  default = {}
}
