# Sundog. The two commands of the README are `make demo` and `make test`.
# `make help` lists the rest. Everything needed beyond Go (1.26), make and git is
# fetched by Go itself, pinned in go.mod and internal/tools/go.mod.

.NOTPARALLEL: # two cores are the machine this is built for; targets use them by themselves
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build

GO      ?= go
TOOL    := $(GO) tool -modfile=internal/tools/go.mod
COMMIT  := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.commit=$(COMMIT)

# Packages whose goroutines share memory: what `make race` runs.
RACE := ./client/... ./dataplane/... ./node/... ./replication/... ./rpc/...
# Statement coverage over the whole module below which `make cover` fails.
COVER_FLOOR := 85
FUZZTIME ?= 5s

.PHONY: help build demo test unit race lint cover fuzz bench soak mutants cross generate licences clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

build: | need-go ## bin/sundog, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/sundog ./cmd/sundog

demo: build ## three nodes, real data, a leader killed: the story in half a minute
	bin/sundog demo --exit

test: need-disks lint cover race mutants cross ## all of CI: lint, unit, property, fuzz corpus, race, real processes
	@echo "make test: all passed"

unit: | need-go ## the everyday inner loop
	$(GO) test ./...

lint: | need-go licences ## gofmt, vet, staticcheck, walls, doc comments, generated code, licences
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "gofmt -w these: $$bad"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags mutant ./...
	$(TOOL) staticcheck -checks inherit,ST1000,ST1005,ST1006,ST1016,ST1020,ST1021,ST1022 ./...
	$(GO) test -count=1 -run 'TestWalls|TestHouseRules' .
	$(MAKE) generate
	@git diff --exit-code --stat -- '*.pb.go' || { echo "generated code differs from its .proto: commit what 'make generate' made"; exit 1; }
	$(GO) mod tidy -diff

licences: | need-go ## every dependency of the binary is under a licence we accept
	$(TOOL) go-licenses check --ignore github.com/sundog-kv/sundog \
	  --allowed_licenses=Apache-2.0,MIT,BSD-2-Clause,BSD-3-Clause,ISC,MPL-2.0 ./cmd/sundog
	scripts/notice.sh check

cover: build ## all tests with statement coverage, held above a floor
	SUNDOG_LONG=1 $(GO) test -timeout 20m -coverprofile=coverage.out -coverpkg=./... ./...
	@grep -v "\.pb\.go:" coverage.out > coverage.tmp && mv coverage.tmp coverage.out
	@total=$$($(GO) tool cover -func=coverage.out | awk '/^total:/ { sub("%", "", $$3); print $$3 }'); \
	  echo "coverage $$total% (floor $(COVER_FLOOR)%)"; \
	  awk -v t="$$total" 'BEGIN { exit !(t >= $(COVER_FLOOR)) }'

race: | need-go need-cc ## the race detector on all that shares memory
	CGO_ENABLED=1 $(GO) test -race -timeout 15m $(RACE)

mutants: | need-go ## each checker is shown to fail on a broken build
	$(GO) test -tags mutant -timeout 10m -run 'Mutant' ./...

cross: | need-go ## it compiles for darwin and windows
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./...
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 $(GO) vet ./...

fuzz: | need-go ## every fuzz target for FUZZTIME each
	FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

bench: build ## the figures of docs/results.md, measured on this machine
	scripts/bench.sh

soak: build ## the long runs: schedules and real processes for SOAK minutes (default 30)
	SUNDOG_SOAK_MINUTES=$${SOAK:-30} SUNDOG_LONG=1 $(GO) test -count=1 -timeout 24h -v -run 'Soak' ./integration

generate: | need-go ## Go code from the .proto files
	$(GO) run -C internal/tools ./protogen ../..

clean: ## remove what make made
	rm -rf bin coverage.out

.PHONY: need-go need-cc need-disks
need-disks: # the power-cut tests, which run as root on Linux only
	@if [ "$$(uname)" = Linux ] && [ "$$(id -u)" = 0 ]; then \
	  scripts/need.sh mkfs.ext4 e2fsprogs; scripts/need.sh mount mount; scripts/need.sh ip iproute2; scripts/need.sh unshare util-linux; fi
need-go:
	@command -v $(GO) >/dev/null || { echo "Go 1.26 or later is needed: https://go.dev/doc/install, or apt-get install golang"; exit 1; }
need-cc:
	@scripts/need.sh $$($(GO) env CC) gcc libc6-dev # the race detector links with it
