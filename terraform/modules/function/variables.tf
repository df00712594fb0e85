variable "project_id" {
  description = "The function's project."
  type        = string
}

variable "region" {
  description = "The function's region."
  type        = string
}

variable "name" {
  description = "The function's name, which is its Cloud Run service's too."
  type        = string
}

variable "description" {
  description = "What it does."
  type        = string
}

variable "entry_point" {
  description = "Receive or Relay: which function of the source it serves."
  type        = string
}

variable "url" {
  description = "The URL that callers use, and that their tokens are made for."
  type        = string
}

variable "runtime" {
  description = "Runtime, such as go126."
  type        = string
}

variable "labels" {
  description = "Labels on the function."
  type        = map(string)
}

variable "source_bucket" {
  description = "Bucket of the source archive."
  type        = string
}

variable "source_object" {
  description = "Object of the source archive. Another name is another build."
  type        = string
}

variable "build" {
  description = "Account (projects/P/serviceAccounts/E) that builds, and repository (projects/P/locations/L/repositories/R) of the image."
  type = object({
    service_account = string
    repository      = string
  })
}

variable "kms_key" {
  description = "Full name of a key for the source and the image, or null."
  type        = string
}

variable "service_account" {
  description = "E-mail of the account that it runs as."
  type        = string
}

variable "max_instances" {
  description = "How many instances it has at most."
  type        = number
}

variable "min_instances" {
  description = "How many instances are kept warm."
  type        = number
}

variable "concurrency" {
  description = "Requests at the same time in one instance. Google's default is 1."
  type        = number
}

variable "memory_mib" {
  description = "Memory of an instance, in MiB."
  type        = number
}

variable "cpu" {
  description = "CPUs of an instance."
  type        = number
}

variable "timeout_seconds" {
  description = "After which a request is ended, in seconds."
  type        = number
}

variable "ingress" {
  description = "Whose requests reach it at all: ALLOW_INTERNAL_ONLY, ALLOW_INTERNAL_AND_GCLB or ALLOW_ALL. IAM comes after."
  type        = string
}

variable "vpc" {
  description = "Network, subnetwork and egress (PRIVATE_RANGES_ONLY or ALL_TRAFFIC) for what it sends, or null."
  type = object({
    network    = string
    subnetwork = string
    egress     = string
  })
}

variable "config" {
  description = "The secret with the configuration, its version, and the directory and file that it is mounted as."
  type = object({
    directory = string
    file      = string
    secret    = string
    version   = string
  })
}

variable "secrets" {
  description = "Environment variable => secret (projects/P/secrets/S) and version."
  type = map(object({
    secret  = string
    version = string
  }))
  default = {}
}

variable "environment" {
  description = "Environment variables."
  type        = map(string)
}
