variable "project_id" {
  description = "The project to deploy to."
  type        = string
}

variable "region" {
  description = "The region to deploy to."
  type        = string
  default     = "europe-west1"
}

variable "source_archive" {
  description = "The functions' source, as `make dist` writes it."
  type        = string
}

variable "config_file" {
  description = "Path of the inbox's configuration. Without it the one beside this file, whose engine exists nowhere."
  type        = string
  default     = null
}

variable "engine_secrets" {
  description = "The secrets that the configuration names: environment variable => secret (projects/P/secrets/S) and version."
  type = map(object({
    secret  = string
    version = string
  }))
  default = {}
}

variable "ephemeral" {
  description = "Whether `make destroy` may delete the database, with all that is in it."
  type        = bool
  default     = false
}
