#!/usr/bin/env bash
# Deploys a root configuration: apply, migrate, smoke test. Run it as `make deploy PROJECT=...`, which makes the archive.
# Other inputs come as TF_VAR_region=..., TF_VAR_config_file=/path/to/inbox.yaml and so on.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${PROJECT:?say where to: make deploy PROJECT=my-project}"
deployment=${DEPLOYMENT:-terraform/examples/minimal}
tf() { terraform -chdir="$deployment" "$@"; }
var=(-var "project_id=$PROJECT" -var "source_archive=$PWD/dist/functions.zip")

tf init -input=false
tf apply ${AUTO_APPROVE:+-auto-approve} "${var[@]}"

SPANNER_DATABASE=$(tf output -raw database)
INBOX_CONFIG=$(tf output -raw config)
topic=$(tf output -raw topic)
subscription=$(tf output -raw subscription)
unset INBOX_CONFIG_FILE # of the shell's own: one configuration only
export SPANNER_DATABASE INBOX_CONFIG
${GO:-go} run ./cmd/inboxctl migrate
# Ten minutes: new grants take some to be known everywhere.
${GO:-go} run ./cmd/smoke --topic "$topic" --subscription "$subscription" --timeout 10m
