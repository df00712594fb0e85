#!/usr/bin/env bash
# Checks the module with terraform: format, validation, tests with a mocked provider, plans, and copies that lack something.
# Where terraform is not installed, or the provider cannot be had, it says so; with REQUIRE_TERRAFORM=1 that is a failure.
set -euo pipefail
cd "$(dirname "$0")"

if ! command -v terraform >/dev/null 2>&1; then
	echo "terraform is not installed: the checks of the Terraform module are skipped" >&2
	[ "${REQUIRE_TERRAFORM:-0}" != 1 ]
	exit
fi
# A stand-in for the provider, where there is one; elsewhere terraform init brings the provider, once.
offline=../../shared/terraform-offline/offline-env
if [ -x "$offline" ]; then
	eval "$("$offline")"
	export TERRAFORM_OFFLINE=1
else
	export TF_PLUGIN_CACHE_DIR="${TF_PLUGIN_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/terraform-plugins}"
	mkdir -p "$TF_PLUGIN_CACHE_DIR"
	probe=$(mktemp -d)
	trap 'rm -rf "$probe"' EXIT
	cp versions.tf "$probe"
	if ! terraform -chdir="$probe" init -input=false >"$probe/init.log" 2>&1; then
		tail -5 "$probe/init.log" >&2
		echo "terraform cannot get the provider here: the checks of the Terraform module, but for its format, are skipped" >&2
		terraform fmt -check -recursive .
		[ "${REQUIRE_TERRAFORM:-0}" != 1 ]
		exit
	fi
fi
TERRAFORM_CHECKS=1 ${GO:-go} test -count=1 -parallel "${PARALLEL:-2}" -timeout 10m \
	-run '^(TestFormat|TestModuleAndExamples|TestTheReadmesConfiguration|TestAPlan|TestNoElement)' .
