variable "project_id" {
  description = "The project of instance and database."
  type        = string
}

variable "name" {
  description = "Name of the database, and of the instance that is made."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,28}[a-z0-9]$", var.name))
    error_message = "name must have 2 to 30 characters: lower-case letters, digits and hyphens, a letter first and no hyphen last."
  }
}

variable "instance" {
  description = "Id of an existing instance. Without it one is made."
  type        = string
  default     = null
}

variable "config" {
  description = "Configuration of the instance that is made, such as regional-europe-west1."
  type        = string
}

variable "edition" {
  description = "STANDARD, ENTERPRISE or ENTERPRISE_PLUS."
  type        = string
  default     = "STANDARD"

  validation {
    condition     = contains(["STANDARD", "ENTERPRISE", "ENTERPRISE_PLUS"], var.edition)
    error_message = "edition must be STANDARD, ENTERPRISE or ENTERPRISE_PLUS."
  }
}

variable "processing_units" {
  description = "Size of the instance that is made: 100 to 1000 in hundreds, beyond in thousands."
  type        = number
  default     = 100
}

variable "autoscaling" {
  description = "Instead of a fixed size: from min to max processing units, in thousands, at this share of the CPU in percent. Not with edition STANDARD."
  type = object({
    min_processing_units = number
    max_processing_units = number
    cpu_percent          = optional(number, 65)
  })
  default = null
}

variable "version_retention" {
  description = "How far back a point-in-time read can go: 1h to 7d."
  type        = string
  default     = "1h"
}

variable "backup_schedule" {
  description = "When a full backup is made: unix cron in UTC, at least 12 hours apart."
  type        = string
  default     = "0 2 * * *"
}

variable "backup_retention_days" {
  description = "How long a backup is kept, 1 to 366 days. Each is a full one, and is paid for."
  type        = number
  default     = 7
}

variable "kms_key" {
  description = "Full name of a key for the database and its backups, or null."
  type        = string
  default     = null
}

variable "labels" {
  description = "Labels on the instance."
  type        = map(string)
  default     = {}
}

variable "ephemeral" {
  description = "Whether everything may be deleted with all that is in it."
  type        = bool
  default     = false
}
