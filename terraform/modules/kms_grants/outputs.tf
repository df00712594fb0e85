output "kms_key" {
  description = "The key, usable: whoever takes it from here waits for the grants."
  value       = var.kms_key
  depends_on  = [google_kms_crypto_key_iam_member.agent]
}
