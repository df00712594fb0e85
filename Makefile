# Everything a person or CI runs. `make` alone says what there is.

GO ?= go
export GOFLAGS ?= -buildvcs=false

.DEFAULT_GOAL := help
.PHONY: help demo demo-flowable up test test-engines verify bench build lint fmt generate fuzz

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

generate: ## Write migrations/schema.sql anew from the migrations
	$(GO) test ./internal/migrate -run TestSchema -update

lint: ## Check format, vet and staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod verify

verify: lint ## Run all checks and all tests, with the race detector, in random order
	$(GO) test -race -shuffle=on -timeout 18m ./...

bench: ## Count round trips, compare side by side, print ratios, write bench/results.md
	$(GO) run ./bench

fuzz: ## Fuzz the envelope and the configuration, a minute each
	$(GO) test ./internal/pushmsg -run '^$$' -fuzz '^FuzzParse$$' -fuzztime 60s
	$(GO) test ./internal/config -run '^$$' -fuzz '^FuzzParse$$' -fuzztime 60s -fuzzminimizetime 1s
