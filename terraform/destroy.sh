#!/usr/bin/env bash
# Destroys what deploy.sh has made, unless messages are left that nobody else has any more. Run it as
# `make destroy PROJECT=...`, which makes the archive that is an input here, too. FORCE=1 destroys them, too.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${PROJECT:?say where: make destroy PROJECT=my-project}"
deployment=${DEPLOYMENT:-terraform/examples/minimal}
tf() { terraform -chdir="$deployment" "$@"; }

tf init -input=false >/dev/null
# A protected database is refused only when its turn comes, which is last: by then nothing would feed it any more.
if [ "$(tf output -raw ephemeral)" != true ]; then
	echo "refused: database and payloads are protected; apply with ephemeral = true first" >&2
	exit 1
fi
if [ "${FORCE:-0}" != 1 ]; then
	SPANNER_DATABASE=$(tf output -raw database)
	export SPANNER_DATABASE
	# Of every consumer in the database, whatever configuration is at hand.
	unset INBOX_CONFIG INBOX_CONFIG_FILE
	if ! left=$(${GO:-go} run ./cmd/inboxctl list --status RECEIVED,PROCESSING,RETRYING,PARKED --limit 20); then
		echo "refused: whether messages are open or parked cannot be told; FORCE=1 destroys whatever is there" >&2
		exit 1
	fi
	if [ -n "$left" ]; then
		printf '%s\n' "$left" >&2
		echo "refused: these messages are open or parked, and nobody else has them; FORCE=1 destroys them" >&2
		exit 1
	fi
fi
tf destroy ${AUTO_APPROVE:+-auto-approve} -var "project_id=$PROJECT" -var "source_archive=$PWD/dist/functions.zip"
