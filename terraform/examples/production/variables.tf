variable "project_id" {
  description = "The project to deploy to."
  type        = string
}

variable "region" {
  description = "The region to deploy to; the key is in it too."
  type        = string
  default     = "europe-west1"
}

variable "source_archive" {
  description = "The functions' source, as `make dist` writes it."
  type        = string
}

variable "kms_key" {
  description = "Full name of the key: projects/P/locations/L/keyRings/R/cryptoKeys/K."
  type        = string
}

variable "network" {
  description = "Network that the engines are reached in."
  type        = string
}

variable "subnetwork" {
  description = "Subnetwork of it, in region, with Private Google Access."
  type        = string
}

variable "notification_channels" {
  description = "Full names of the channels that alerts go to."
  type        = list(string)
}
