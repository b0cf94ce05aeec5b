# SPDX-License-Identifier: Apache-2.0
#
# Needs Go, make and git (git only for the version and for `make generate-check`). A C compiler adds the
# race detector to `make test`. Every variable below can be set on the command line or in the environment.

SHELL       := /bin/sh
.SHELLFLAGS := -ec
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO        ?= go
BIN       ?= bin
PKGS      ?= ./...
TIMEOUT   ?= 20m
FUZZTIME  ?= 20s
TESTFLAGS ?=
DEMOFLAGS ?=

# Empty without git or without a release tag: internal/version then asks the Go build information.
VERSION ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null)
COMMIT  ?= $(shell git describe --always --exclude '*' --abbrev=12 --dirty 2>/dev/null)
LDFLAGS ?= -s -w
MODULE  := github.com/vipmove/vipmove
STAMP   := -X $(MODULE)/internal/version.Version=$(VERSION) -X $(MODULE)/internal/version.Commit=$(COMMIT)
GOBUILD  = CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS) $(STAMP)'

# RACE=1 or RACE=0 overrides the look for a working C compiler on a platform that has a race detector.
RACE ?= $(shell case "$$($(GO) env CGO_ENABLED) $$($(GO) env GOARCH)" in \
	("1 amd64"|"1 arm64"|"1 ppc64le"|"1 s390x") \
	  printf '\043include <stdlib.h>\nint main(void) { return 0; }\n' | \
	  $$($(GO) env CC) -x c -o /dev/null - 2>/dev/null && echo 1 || echo 0 ;; \
	(*) echo 0 ;; esac)

# Tools are pinned in tools/go.mod. A newer Go builds them anew: staticcheck must not be older than the code.
TOOLS     := bin/tools
GOVERSION  = $(firstword $(shell $(GO) env GOVERSION))
BUILD_TOOL = $(GO) build -C tools -trimpath -o ../$(TOOLS)/

.PHONY: help
help: ## Show this list
	@echo 'vipmove: make TARGET [VARIABLE=value]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | \
	  while IFS='|' read -r target text; do printf '  %-16s %s\n' "$$target" "$$text"; done

.PHONY: build
build: ## Build bin/vipmove, bin/vipmove-agent and bin/vipmove-coordinator (static)
	$(GOBUILD) -o $(BIN)/vipmove .
	$(GOBUILD) -o $(BIN)/vipmove-agent ./agent
	$(GOBUILD) -o $(BIN)/vipmove-coordinator ./coordinator

.PHONY: demo
demo: build ## Play the story on this machine: seven answer, then one (DEMOFLAGS=...)
	$(BIN)/vipmove demo $(DEMOFLAGS)

.PHONY: test
test: build ## Run all tests, with the race detector where possible (PKGS, TESTFLAGS, RACE, TIMEOUT)
	@race=$(RACE); [ "$$race" = 1 ] || echo 'test: without the race detector (RACE=0, no working C compiler, or a platform that has none)'; \
	[ "$$race" = 1 ] && flag=-race || flag=; \
	set -x; $(GO) test $$flag -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $(PKGS)

include hack/kernel.mk

.PHONY: lint
lint: $(TOOLS)/staticcheck ## Check formatting, go vet and staticcheck
	@files=$$(find . \( -name '.?*' -o -name bin -o -name vendor -o -name testdata \) -prune -o \
	  -name '*.go' ! -name '*.pb.go' -print); \
	bad=$$("$$($(GO) env GOROOT)/bin/gofmt" -l $$files); \
	[ -z "$$bad" ] || { echo 'lint: not gofmt-ed:'; echo "$$bad"; exit 1; }
	$(GO) vet ./...
	$(TOOLS)/staticcheck ./...

.PHONY: fuzz
fuzz: ## Fuzz every target in the tree, each for FUZZTIME
	@grep -rn --include='*_test.go' --exclude-dir=vendor --exclude-dir=tools -o '^func Fuzz[A-Za-z0-9_]*' . | sort | \
	while IFS=: read -r file line decl; do \
	  target=$${decl#func }; \
	  echo "fuzz: $$target in $${file%/*} for $(FUZZTIME)"; \
	  $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$${file%/*}" </dev/null || exit 1; \
	done

.PHONY: generate
generate: $(TOOLS)/buf $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc ## Generate Go from proto/
	$(TOOLS)/buf generate

.PHONY: generate-check
generate-check: $(TOOLS)/buf $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc ## Check that generated code is current and the wire contract compatible
	BUF=$(TOOLS)/buf tools/generate-check.sh

.PHONY: check
check: lint generate-check test ## Everything a change must pass: lint, generate-check, test

.PHONY: vuln
vuln: $(TOOLS)/govulncheck ## Look for known vulnerabilities (needs the network: it reads the Go vulnerability database)
	@$(TOOLS)/govulncheck ./... || { echo 'vuln: findings above, or the Go vulnerability database cannot be reached from here' >&2; exit 1; }

.PHONY: tools
tools: $(TOOLS)/buf $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc $(TOOLS)/staticcheck $(TOOLS)/govulncheck ## Build the pinned tools into bin/tools (cold: some minutes)

.PHONY: clean
clean: ## Remove the three binaries and the built tools
	rm -f $(BIN)/vipmove $(BIN)/vipmove-agent $(BIN)/vipmove-coordinator
	rm -rf $(TOOLS)

$(TOOLS)/.$(GOVERSION):
	@rm -rf $(TOOLS) && mkdir -p $(TOOLS) && touch $@

$(TOOLS)/buf: tools/go.mod tools/go.sum $(TOOLS)/.$(GOVERSION)
	$(BUILD_TOOL) github.com/bufbuild/buf/cmd/buf && touch $@
$(TOOLS)/protoc-gen-go: tools/go.mod tools/go.sum $(TOOLS)/.$(GOVERSION)
	$(BUILD_TOOL) google.golang.org/protobuf/cmd/protoc-gen-go && touch $@
$(TOOLS)/protoc-gen-go-grpc: tools/go.mod tools/go.sum $(TOOLS)/.$(GOVERSION)
	$(BUILD_TOOL) google.golang.org/grpc/cmd/protoc-gen-go-grpc && touch $@
$(TOOLS)/staticcheck: tools/go.mod tools/go.sum $(TOOLS)/.$(GOVERSION)
	$(BUILD_TOOL) honnef.co/go/tools/cmd/staticcheck && touch $@
$(TOOLS)/govulncheck: tools/go.mod tools/go.sum $(TOOLS)/.$(GOVERSION)
	$(BUILD_TOOL) golang.org/x/vuln/cmd/govulncheck && touch $@
