# Everything a person or CI runs. `make` alone says what there is.

GO ?= go
export GOFLAGS ?= -buildvcs=false

.DEFAULT_GOAL := help
.PHONY: help demo demo-flowable up test test-engines verify bench build lint fmt generate fuzz dist deploy destroy terraform

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

demo: ## Run the whole path on this machine, with real emulators, and say what happens (under a minute)
	$(GO) run ./cmd/local demo

demo-flowable: ## Run the work-order example with a real Flowable (Java 17, Maven), and say what happens (under a minute, once built)
	$(GO) run ./cmd/local demo-flowable

up: ## Start the same stack and leave it running until Ctrl-C
	$(GO) run ./cmd/local up

test: ## Run every test that needs no more than the emulators; fails, not skips, without them
	$(GO) test -timeout 15m ./...

test-engines: ## Run the tests that need a real engine: Flowable, built with Maven; fails without Java or Maven unless SKIP_ENGINES=1
ifeq ($(SKIP_ENGINES),1)
	@echo "SKIP_ENGINES=1: the tests that need a real engine are skipped"
else
	$(GO) vet -tags engines ./...
	$(GO) test -tags engines -count=1 -p 1 -timeout 8m ./internal/engine/flowable/... ./examples/...
	$(GO) test -tags engines -count=1 -p 1 -timeout 8m -run Flowable ./internal/e2e ./cmd/local
endif

build: ## Compile everything
	$(GO) build ./...

fmt: ## Format the code
	gofmt -w $$(git ls-files '*.go')

generate: ## Write migrations/schema.sql and the tables of docs/metrics.md and terraform/README.md anew
	$(GO) test ./internal/migrate -run TestSchema -update
	$(GO) test ./internal/telemetry -run TestMetricsDocument -update
	$(GO) run ./terraform/internal/reference

lint: ## Check format, vet and staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod verify

verify: lint terraform ## Run all checks and all tests, with the race detector, in random order
	$(GO) test -race -shuffle=on -timeout 18m ./...

bench: ## Count round trips, compare side by side, print ratios, write bench/results.md
	$(GO) run ./bench

fuzz: ## Fuzz the envelope and the configuration, a minute each
	$(GO) test ./internal/pushmsg -run '^$$' -fuzz '^FuzzParse$$' -fuzztime 60s
	$(GO) test ./internal/config -run '^$$' -fuzz '^FuzzParse$$' -fuzztime 60s -fuzzminimizetime 1s

terraform: ## Check the Terraform module: format, validate, test, plans; says so where terraform is not installed
	@GO="$(GO)" terraform/check.sh

dist: ## Write dist/functions.zip, which both functions are deployed from; the same sources give the same bytes
	@$(GO) run ./cmd/dist -o dist/functions.zip

deploy: dist ## Deploy to PROJECT: terraform apply, migrate, smoke test (docs/deploy.md)
	@PROJECT="$(PROJECT)" GO="$(GO)" terraform/deploy.sh

destroy: dist ## Destroy what is deployed to PROJECT; refuses while messages are open or parked
	@PROJECT="$(PROJECT)" GO="$(GO)" terraform/destroy.sh
