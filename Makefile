# Targets for people; `make help` lists them. Nothing is needed but Go, gcc and make: SQLite is built from the module's
# own source, generated code is committed.

MODULE  := github.com/hermes-supervisor/hermes-supervisor
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BIN     ?= bin
PREFIX  ?= /usr/local
DESTDIR ?=

# Full-text search is compiled in; loading code from a database file is compiled out.
TAGS    := sqlite_fts5,sqlite_omit_load_extension
# What is shipped has no pages of gRPC about its own calls; they take a start and memory in every process.
LEAN    := grpcnotrace
LDFLAGS := -s -w -X $(MODULE)/ipc.version=$(VERSION)
# All modules of the repository, the main one first.
MODULES := . $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod -not -path './.git/*' | sort))

# Of chaos and soak; without SEED one is chosen and printed.
SEED     ?=
MESSAGES ?= 2000
SOAK     ?= 20000
KILLS    ?= 200
# Of the large store that bench measures.
STORE_MESSAGES ?= 1000000
SOAK_TIME ?= 30m
# Of each kind of traffic.
VERDICT_MONTHS ?= 6

.DEFAULT_GOAL := help
.PHONY: help build run test vet race e2e systemd-e2e chaos crash soak verdicts fuzz bench bench-peers lint gen install uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build all binaries into bin/
	@mkdir -p $(BIN)
	go build -trimpath -tags $(TAGS),$(LEAN) -ldflags '$(LDFLAGS)' -o $(BIN)/ . ./workers/cmd/...

run: build ## build, start the supervisor and chat in this terminal
	$(BIN)/hermes-supervisor run --foreground-chat

# Never from the cache: the end-to-end tests run binaries that the cache knows nothing of.
test: vet ## all tests of all modules
	@set -e; for m in $(MODULES); do echo "== $$m"; (cd $$m && go test -count=1 -timeout 20m -tags $(TAGS) ./...); done

vet:
	@set -e; for m in $(MODULES); do (cd $$m && go vet -tags $(TAGS) ./...); done

race: ## all tests but the long end-to-end ones, with the race detector
	go test -race -short -tags $(TAGS) ./...

e2e: ## the end-to-end tests alone, in words
	go test -count=1 -v -tags $(TAGS) ./e2e/...

systemd-e2e: ## as a service of a real systemd (root only)
	HERMES_E2E_SYSTEMD=1 go test -count=1 -v -timeout 15m -tags $(TAGS) -run AsAServiceOfARealSystemd ./e2e/...

chaos: ## kill everything at random while MESSAGES messages are answered (SEED repeats a run)
	HERMES_E2E_MESSAGES=$(MESSAGES) HERMES_E2E_SEED=$(SEED) go test -count=1 -v -timeout 3h -tags $(TAGS) -run EveryMessageIsAnsweredOnce ./e2e/...

crash: ## kill -9 a writing store KILLS times under full load: nothing answered is lost or doubled (the tests do it 10 times)
	STORE_KILLS=$(KILLS) STORE_SEED=$(SEED) go test -count=1 -v -timeout 1h -tags $(TAGS) -run KillLosesNothing ./store

soak: ## half an hour (SOAK_TIME) of leaking, crashing, freezing, flooding workers, then chaos with SOAK messages
	HERMES_SOAK=$(SOAK_TIME) go test -count=1 -v -timeout 24h -tags $(TAGS) -run Soak ./supervisor
	@$(MAKE) -s chaos MESSAGES=$(SOAK)

verdicts: ## leaks of known speed and VERDICT_MONTHS months of traffic without one: times to the verdict, false alarms
	go test -count=1 -v -timeout 2h -run 'TimeToVerdict|Month' ./supervisor/leak -args -months $(VERDICT_MONTHS) -seed 100

fuzz: ## each parser for 30 s
	@set -e; grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read d; do \
	  grep -h -o '^func Fuzz[A-Za-z0-9_]*' $$d/*_test.go | cut -c6- | while read f; do \
	    echo "== $$d $$f"; go test -tags $(TAGS) -run '^$$' -fuzz "^$$f$$" -fuzztime 30s $$d; done; done

bench: build ## measure the running system and the store; tables, and JSON in bench/results
	go run -tags $(TAGS) ./bench -bin $(BIN) -json bench/results/system.json
	go test -run '^$$' -bench Rounds -benchtime 60x ./supervisor/sample
	go test -tags $(TAGS) -run '^$$' -bench Against -benchtime 1x ./store
	STORE_MESSAGES=$(STORE_MESSAGES) go test -tags $(TAGS) -run '^$$' -bench Large -benchtime 1x -timeout 2h ./store

bench-peers: build ## measure other process supervisors beside this one (those that are installed), in one table
	go run ./bench/peers -bin $(BIN) -json bench/results/peers.json

lint: ## gofmt, vet, and golangci-lint where it is installed
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt -w on these'; exit 1; }
	@$(MAKE) -s vet
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./...; else echo 'golangci-lint is not installed: go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@latest'; fi

gen: ## make the generated code again
	cd ipc/protogen && go run .
	go test -tags $(TAGS) -run TestDependenciesAreListed . -update

install: build ## copy the binaries to PREFIX
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/hermes-supervisor
	install $(BIN)/hermes-supervisor $(DESTDIR)$(PREFIX)/bin/
	for b in $(notdir $(wildcard workers/cmd/*)); do install $(BIN)/$$b $(DESTDIR)$(PREFIX)/libexec/hermes-supervisor/; done

uninstall: ## remove what install copied
	rm -rf $(DESTDIR)$(PREFIX)/bin/hermes-supervisor $(DESTDIR)$(PREFIX)/libexec/hermes-supervisor

clean: ## remove built files
	rm -rf $(BIN)
