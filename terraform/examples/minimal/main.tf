# The least that is a whole deployment: one subscription with a topic of its own, a small database, all alerts. It is what
# `make deploy` applies.

terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.45, < 9.0"
    }
  }
}

provider "google" {
  project = var.project_id
  region  = var.region
}

module "inbox" {
  source = "../.."

  project_id     = var.project_id
  region         = var.region
  source_archive = var.source_archive
  config         = file(coalesce(var.config_file, "${path.module}/inbox.yaml"))
  engine_secrets = var.engine_secrets
  subscriptions  = { events = {} }
  ephemeral      = var.ephemeral
}
