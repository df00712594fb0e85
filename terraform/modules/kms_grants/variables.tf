variable "project_id" {
  description = "The project whose service agents may use the key: the inbox's, not the key's."
  type        = string
}

variable "kms_key" {
  description = "Full name of the key."
  type        = string
}
