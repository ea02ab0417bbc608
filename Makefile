# The verbs of the project. `make test` is what CI runs; `make check` adds the linters.
GO       ?= go
BIN      := bin
CACHE    ?= $(HOME)/.cache/pipedeck/bin
PACKAGES := ./...
# SQLite is translated from C: checking its pointers costs a test several times
# its own work, and finds nothing of ours.
FOREIGN  := -gcflags=modernc.org/...=-d=checkptr=0

VERSITYGW_VERSION := v1.8.0
GOFUMPT_VERSION   := v0.12.0
GOLANGCI_VERSION  := v2.15.0
GOTESTSUM_VERSION := v1.13.0
# RERUN=1: tests that failed are run once more by themselves, and both results
# are shown. CI does that: its two cores are shared.
RERUN ?= 0

export CGO_ENABLED ?= 0

.PHONY: build gpu demo test check e2e fuzz bench bench-console pictures fmt lint cross tools golden clean

build: ## the static binary, bin/pipedeck
	$(GO) build -trimpath -o $(BIN)/pipedeck ./cmd/pipedeck

gpu: ## bin/pipedeck-gpu, which reads NVML: needs gcc and glibc
	CGO_ENABLED=1 CGO_CFLAGS="-O2 -Wno-deprecated-declarations" $(GO) build -trimpath -ldflags '-s -w -extldflags=-Wl,-z,lazy' -o $(BIN)/pipedeck-gpu ./cmd/pipedeck-gpu

VERSION ?=
dist: ## what nodes get: dist/pipedeck-linux-{amd64,arm64}, and pipedeck-gpu where a C compiler for it is at hand
	@for arch in amd64 arm64; do \
	  echo "dist/pipedeck-linux-$$arch"; \
	  CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -ldflags '-s -w $(if $(VERSION),-X main.version=$(VERSION))' \
	    -o dist/pipedeck-linux-$$arch ./cmd/pipedeck || exit 1; \
	  case $$arch in amd64) cc=x86_64-linux-gnu-gcc;; arm64) cc=aarch64-linux-gnu-gcc;; esac; \
	  command -v $$cc >/dev/null || { echo "without $$cc no dist/pipedeck-gpu-linux-$$arch: nodes use nvidia-smi"; continue; }; \
	  echo "dist/pipedeck-gpu-linux-$$arch"; \
	  CGO_ENABLED=1 CC=$$cc GOOS=linux GOARCH=$$arch CGO_CFLAGS="-O2 -Wno-deprecated-declarations" \
	    $(GO) build -trimpath -ldflags '-s -w -extldflags=-Wl,-z,lazy' -o dist/pipedeck-gpu-linux-$$arch ./cmd/pipedeck-gpu || exit 1; \
	done

demo: build ## everything embedded, in this terminal
	$(BIN)/pipedeck demo

test: tools $(CACHE)/gotestsum-$(GOTESTSUM_VERSION) ## all tests with the race detector, and the cross-builds
	CGO_ENABLED=1 VERSITYGW=$(CACHE)/versitygw $(CACHE)/gotestsum-$(GOTESTSUM_VERSION) --format standard-quiet \
	  --rerun-fails=$(RERUN) --rerun-fails-run-root-test --rerun-fails-max-failures=6 --packages="$(PACKAGES)" -- -race $(FOREIGN) -timeout 40m
	$(MAKE) --no-print-directory cross

cross: ## the platforms that are promised: the agent's, and the console's on a Mac
	GOOS=linux GOARCH=arm64 $(GO) build -o /dev/null ./cmd/pipedeck
	GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/pipedeck
	CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/pipedeck-gpu

check: test lint ## test, and the linters

lint: $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)
	$(GO) vet $(PACKAGES)
	$(CACHE)/golangci-lint-$(GOLANGCI_VERSION) run

e2e: tools build ## only the end-to-end tests: real processes, real S3 server, tmux
	CGO_ENABLED=1 VERSITYGW=$(CACHE)/versitygw $(GO) test -race $(FOREIGN) -timeout 40m -run 'E2E|Script' -v ./cmd/...

FUZZTIME ?= 20s
fuzz: ## each fuzz target for FUZZTIME
	scripts/fuzz $(FUZZTIME)

bench: ## benchmarks; figures that compare are ratios within one run
	$(GO) test -run '^$$' -bench . -benchmem $(PACKAGES)

bench-console: build ## what the console costs: bytes, CPU, key to screen; beside btop and nvtop
	$(GO) run ./bench/console -bin $(BIN)/pipedeck

pictures: build ## draw the screens of README and docs anew: from the demo, and those recorded on GPUs
	$(GO) run ./bench/pictures -bin $(BIN)/pipedeck -recorded testdata/gpu/screens -out docs/pictures

fmt: $(CACHE)/gofumpt-$(GOFUMPT_VERSION)
	$(CACHE)/gofumpt-$(GOFUMPT_VERSION) -modpath pipedeck -w cmd gpu pipeline remote s3 tui *.go

golden: ## rewrite the golden files; look at the difference
	$(GO) test ./tui ./pipeline ./pipeline/spec -update

tools: $(CACHE)/versitygw ## what the tests need beside Go: see scripts/setup
	@scripts/setup

$(CACHE)/versitygw:
	@mkdir -p $(CACHE)
	GOBIN=$(CACHE) $(GO) install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION)

$(CACHE)/gofumpt-$(GOFUMPT_VERSION):
	GOBIN=$(CACHE) $(GO) install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
	mv $(CACHE)/gofumpt $@

$(CACHE)/gotestsum-$(GOTESTSUM_VERSION):
	GOBIN=$(CACHE) $(GO) install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	mv $(CACHE)/gotestsum $@

$(CACHE)/golangci-lint-$(GOLANGCI_VERSION):
	GOBIN=$(CACHE) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(CACHE)/golangci-lint $@

clean:
	rm -rf $(BIN) dist
