# The configuration lies in Secret Manager, so that a function reads it as a file and a new one is a new revision.

resource "google_secret_manager_secret" "config" {
  project   = var.project_id
  secret_id = "${var.name}-config"
  labels    = local.labels

  replication {
    user_managed {
      replicas {
        location = var.region
        dynamic "customer_managed_encryption" {
          for_each = var.kms_key == null ? [] : [var.kms_key]
          content {
            kms_key_name = customer_managed_encryption.value
          }
        }
      }
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_secret_manager_secret_version" "config" {
  secret      = google_secret_manager_secret.config.id
  secret_data = var.config

  # The revisions before, and a roll back to one of them, still read theirs.
  deletion_policy = var.ephemeral ? "DELETE" : "ABANDON"

  lifecycle {
    create_before_destroy = true

    precondition {
      condition     = min(values(local.seconds)...) >= 0
      error_message = "The configuration has something that is no duration: ${join(", ", [for name, s in local.seconds : "${name} is ${local.durations[name]}" if s < 0])}. `inboxctl config check` says where."
    }
    precondition {
      condition     = setunion(local.secret_names, keys(var.engine_secrets)) == setintersection(local.secret_names, keys(var.engine_secrets))
      error_message = "The configuration names the secrets [${join(", ", local.secret_names)}], engine_secrets has [${join(", ", keys(var.engine_secrets))}]: each must have the other's."
    }
    precondition {
      condition     = local.seconds["lease"] >= max(2 * local.longest_timeout + 2, ceil(8 * local.longest_timeout / 3))
      error_message = "relay.lease (${local.durations["lease"]}) must be at least ${max(2 * local.longest_timeout + 2, ceil(8 * local.longest_timeout / 3))} s: a claim may take a quarter of it, and no call starts unless its lease has twice the longest engine timeout (${local.longest_timeout} s) left."
    }
    precondition {
      condition     = local.seconds["processed"] >= local.seconds["back_subscription"] + local.seconds["back_dead_letter"] + local.seconds["back_replay"]
      error_message = "retention.processed must be at least the sum of retention.waysBack: what comes back after its row is gone runs a second time."
    }
    precondition {
      condition     = local.seconds["payload"] <= local.seconds["processed"]
      error_message = "retention.payload must not be longer than retention.processed."
    }
    precondition {
      # 2678400 s is dead_letter_retention in pubsub.tf: Pub/Sub's longest.
      condition     = local.seconds["back_dead_letter"] >= 2678400
      error_message = "retention.waysBack.deadLetter must be at least 31d: so long the dead-letter subscription keeps a message."
    }
  }
}

resource "google_secret_manager_secret_iam_member" "config" {
  for_each = {
    receive = google_service_account.receive.email
    relay   = google_service_account.relay.email
  }

  project   = var.project_id
  secret_id = google_secret_manager_secret.config.secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${each.value}"
}

# Only the relay calls engines.
resource "google_secret_manager_secret_iam_member" "engine" {
  for_each = var.engine_secrets

  project   = split("/", each.value.secret)[1]
  secret_id = split("/", each.value.secret)[3]
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${google_service_account.relay.email}"
}
