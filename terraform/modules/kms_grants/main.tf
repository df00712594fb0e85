# A key is used by the service agents of those services whose data it protects. They are granted once for a key and not by
# every instance of the root module: the first of two that is destroyed would take the grants away from the other.

terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.45, < 9.0"
    }
  }
}

data "google_project" "this" {
  project_id = var.project_id
}

resource "google_kms_crypto_key_iam_member" "agent" {
  for_each = {
    artifactregistry = "gcp-sa-artifactregistry"
    functions        = "gcf-admin-robot"
    pubsub           = "gcp-sa-pubsub"
    run              = "serverless-robot-prod"
    secretmanager    = "gcp-sa-secretmanager"
    spanner          = "gcp-sa-spanner"
    storage          = "gs-project-accounts"
  }

  crypto_key_id = var.kms_key
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = "serviceAccount:service-${data.google_project.this.number}@${each.value}.iam.gserviceaccount.com"
}
