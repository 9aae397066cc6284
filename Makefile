# `make` alone lists the targets. All of them work in a bare clone on Debian
# with Go: what else they need (servers, tools, a C compiler for the race
# detector) they install, which takes root the first time.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# What the tests need: the servers whose drivers are here, and Prometheus for the alert rules.
# What only `make test-all` needs: a browser, for the console.
DRIVERS := $(patsubst driver/%/driver.go,%,$(wildcard driver/*/driver.go))
SERVERS ?= redis prometheus $(filter etcd zookeeper consul postgres memcached nats dynamodb,$(DRIVERS)) $(if $(filter mysql,$(DRIVERS)),mariadb)
MORE_SERVERS := chromium

# Passed to every `go test`, as in: make test FLAGS='-run TestX -v'
FLAGS ?=
# No test may hang: after this it is killed, with the stacks of all goroutines.
TIMEOUT ?= 20m

# Modules of their own beside the root's, where they exist. Those of MORE take long and test what
# changes rarely: other libraries beside ours, the console in a browser.
EXAMPLES := $(patsubst %/go.mod,%,$(wildcard examples/go.mod examples/*/go.mod))
MODULES := $(filter-out tools $(EXAMPLES),$(patsubst %/go.mod,%,$(wildcard */go.mod */*/go.mod)))
MORE := internal/browsertest internal/peertest

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/locker
# Tools are built from tools/go.mod, into a folder for that very go.mod.
TOOLS := $(CACHE)/tools-$(shell sha256sum tools/go.mod 2>/dev/null | cut -c1-12)

# $(call in,MODULE...,COMMAND) runs a command in each module, naming it.
in = for m in $(1); do echo "==> $$m: $(2)" | cut -c 1-100; (cd $$m && time $(2)); done
export TIMEFORMAT = ==> %R s

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

# Most of the time the tests wait for leases to end: packages, and the tests of one, go side by
# side on two processors as on more. Two packages leave the processors some air: with three, stores
# on a slow machine answer late now and then. What is compiled and linked meanwhile does not hold the
# tests up. `make lint` runs vet.
TEST := go test -p 2 -parallel 8 -vet=off -toolexec "nice -n 19" -timeout $(TIMEOUT)

# DynamoDB Local needs a processor for a millisecond for each request. It goes beside packages that
# hardly need one, three at a time. driver/all, which uses every server, comes last of the others.
SLEEPERS := dynamodb consul etcd memcached internal/cabinet
empty :=
NOT_SLEEPERS = $$(go list ./... | grep -vE '/driver/($(subst $(empty) $(empty),|,all $(SLEEPERS)))$$') ./driver/all

.PHONY: quick
quick: ## run the tests that need no server: under a minute (the longest package first)
	@unset LOCKER_TEST_REQUIRE; \
	$(call in,.,$(TEST) -short $(FLAGS) ./driver/sqlite ./...); \
	$(call in,$(filter-out bench $(MORE),$(MODULES)),$(TEST) -short $(FLAGS) ./...)
	@echo '==> left out: what needs a server; `make test` installs the servers and runs it'

.PHONY: test
test: ## run the tests on real servers (what CI runs): ten minutes
	@scripts/install-servers.sh $(SERVERS)
	@export LOCKER_TEST_REQUIRE=1; \
	$(call in,.,$(TEST) $(FLAGS) $(NOT_SLEEPERS)); \
	$(call in,.,$(TEST) -p 3 $(FLAGS) $(SLEEPERS:%=./driver/%)); \
	$(call in,$(filter-out $(MORE),$(MODULES)) $(EXAMPLES),$(TEST) $(FLAGS) ./...)

.PHONY: test-all
test-all: ## run what `make test` runs, and what takes longer: clusters, scale, browsers, other libraries
	@scripts/install-servers.sh $(SERVERS) $(MORE_SERVERS)
	@export LOCKER_TEST_REQUIRE=1 LOCKER_TEST_ALL=1; \
	$(call in,.,$(TEST) $(FLAGS) $(NOT_SLEEPERS)); \
	$(call in,.,$(TEST) -p 3 $(FLAGS) $(SLEEPERS:%=./driver/%)); \
	$(call in,$(MODULES) $(EXAMPLES),$(TEST) $(FLAGS) ./...)

# Debian has no packages of it, and it takes 400 MB: not a part of `make test`.
.PHONY: mysql
mysql: ## run the tests of MySQL on Oracle's server, too
	@scripts/install-servers.sh mariadb mysql
	@export LOCKER_TEST_REQUIRE=all; \
	$(call in,.,go test -timeout $(TIMEOUT) $(FLAGS) ./driver/mysql ./fence/sqlfence)

# How long each target runs. An input that fails is written below testdata/fuzz, where `go test` runs it from then on.
TIME ?= 60s

.PHONY: fuzz
fuzz: ## run all fuzz targets, one after the other (make fuzz TIME=10m PKG=driver/etcd)
	@failed=; \
	for f in $$(grep -rn --include='*_test.go' '^func Fuzz' $(or $(PKG),.) | sed -E 's|/[^/:]*:[0-9]+:func (Fuzz[A-Za-z0-9_]*).*|:\1|' | sort); do \
		echo "==> $$f"; \
		go test -run '^$$' -fuzz "^$${f#*:}\$$" -fuzztime $(TIME) "./$${f%%:*}" || failed="$$failed $$f"; \
	done; \
	[ -z "$$failed" ] || { echo "==> failed:$$failed" >&2; exit 1; }

.PHONY: conformance
conformance: ## run the suite on a store of your own (make conformance LOCKER_TEST_URL=redis://...)
	@[ -n "$${LOCKER_TEST_URL:-}" ] || { echo 'make conformance LOCKER_TEST_URL=scheme://host...: which store?' >&2; exit 2; }
	@$(call in,.,go test -count=1 -timeout $(TIMEOUT) -run 'TestConformance$$' $(FLAGS) ./driver/all)

.PHONY: up
up: ## start stores in containers, and print their URLs (make up STORE=redis)
	@scripts/stores.sh up $(STORE)

.PHONY: down
down: ## stop the stores that `make up` started
	@scripts/stores.sh down

# The suite on every store is left out: it takes minutes for each, and runs the
# core's code and the drivers' that the other tests run. All of it:
# make race RACE_SKIP=none.
RACE_SKIP ?= ^TestConformance

.PHONY: race
race: servers gcc ## run the short tests under the race detector
	@export LOCKER_TEST_REQUIRE=1 CGO_ENABLED=1 GORACE='suppressions=$(CURDIR)/scripts/race-suppressions'; \
	$(call in,.,$(TEST) -race -short -parallel 4 -skip '$(RACE_SKIP)' $(FLAGS) ./...)

.PHONY: lint
lint: tools ## golangci-lint, with .golangci.yml
	@$(call in,. $(MODULES) $(EXAMPLES),$(TOOLS)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...)

.PHONY: mutants
mutants: ## put past faults back into the code, and have the simulation find them: ten minutes (make mutants MUTANT=redis)
	@$(call in,.,go test ./internal/sim -run 'TestMutants$$' -v -timeout 6h -mutant '$(or $(MUTANT),.)' $(FLAGS))

.PHONY: models
models: spin ## check the models of two protocols with SPIN, in all states: minutes, and 3 GB of memory
	@internal/models/check.sh

# Not among the tools: it does not build with their versions of its dependencies.
.PHONY: workflows
workflows: ## lint the workflows of .github with actionlint
	@$(call in,.,go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12)

.PHONY: api
api: ## compare the exported API with the last release
	@scripts/api.sh

.PHONY: fmt
fmt: tools ## format all Go files with gofumpt
	@$(TOOLS)/gofumpt -w .

.PHONY: vuln
vuln: tools ## govulncheck (asks vuln.go.dev)
	@$(call in,. $(MODULES),$(TOOLS)/govulncheck ./...)

.PHONY: examples
examples: ## build and vet every example
	@out=$$(mktemp -d); trap "rm -rf $$out" EXIT; \
	if [ -d examples ]; then \
		$(call in,examples $(EXAMPLES),go build -o $$out/ ./...); \
		$(call in,examples $(EXAMPLES),go vet ./...); \
	fi

# $(call servers_of,STORE...) are the servers of stores; of sqlite there is none.
servers_of = $(patsubst mysql,mariadb,$(patsubst sentinel,redis,$(patsubst redlock,redis,$(filter-out sqlite,$(1)))))
comma := ,

.PHONY: bench
bench: NEEDS = $(if $(STORES),$(call servers_of,$(subst $(comma), ,$(STORES))),$(SERVERS))
bench: ## measure against raw stores and peers (make bench STORES=redis: two minutes)
	@$(if $(NEEDS),scripts/install-servers.sh $(NEEDS))
	@export LOCKER_TEST_REQUIRE=1; \
	$(call in,bench,go run . $(if $(STORES),-stores $(STORES)) $(FLAGS))

# As root also with full disks and partitions. The totals are in the user's cache: another run adds
# to them.
.PHONY: soak
soak: STORE ?= redis
soak: HOURS ?= 0.05
soak: ## worker processes on a store that fails, judged by a witness (make soak STORE=etcd HOURS=1)
	@$(if $(call servers_of,$(STORE)),scripts/install-servers.sh $(call servers_of,$(STORE)))
	go run ./internal/soak -store $(STORE) -for $(HOURS)h $(FLAGS)

.PHONY: servers
servers: ## install the servers that the tests need (make servers SERVERS=etcd)
	@scripts/install-servers.sh $(SERVERS)

# The race detector needs a C compiler, and so do the models.
.PHONY: gcc
gcc:
	@command -v gcc >/dev/null || { apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends gcc libc6-dev; }

.PHONY: spin
spin: gcc
	@command -v spin >/dev/null || { apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends spin; }

.PHONY: tools
tools: $(TOOLS)/golangci-lint ## build the pinned tools of tools/go.mod

$(TOOLS)/golangci-lint: tools/go.mod
	@echo '==> building the tools (some minutes the first time)'; \
	time GOWORK=off GOFLAGS= GOBIN=$(TOOLS) go -C tools install tool

.PHONY: clean
clean: ## remove what was built (servers and tools included)
	@rm -rf $(CACHE)/tools-* $(CACHE)/src $(CACHE)/template bin .cache
	@rm -f $(CACHE)/bin/etcd* $(CACHE)/bin/consul* $(CACHE)/bin/nats-server*
