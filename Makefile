# Start here: `make run` and `make test` install what they need into .tools and build the rest. To use an installed
# Envoy:  make ENVOY=/path/to/envoy run

include scripts/versions.sh

ENVOY ?= $(CURDIR)/.tools/envoy-$(ENVOY_VERSION)
export ENVOY

# The programs that the demo and the end-to-end tests run.
export CREDENCE_ENVOY := $(abspath $(ENVOY))
export CREDENCE_WASM := $(CURDIR)/build/credence-filter.wasm
export CREDENCE_BIN := $(CURDIR)/target/release/credence
export CREDENCE_ETCD := $(CURDIR)/.tools/etcd

# CREDENCE_BIN is right only if cargo builds in this folder.
export CARGO_TARGET_DIR := $(CURDIR)/target

# The benchmark of `make bench`: the name after loadtest/bench-.
BENCH ?= filter

# The Cargo profile of `make build`. Release pages, images and `make bench` have dist, which takes longer to build.
PROFILE ?= release

# All except the examples, which are programs of benchmarks. Always of the whole workspace, for which cargo has built
# the dependencies.
TESTS := --workspace --lib --bins --tests
# Two test programs run at a time: many end with a single long test, which keeps one core busy. The tests that compare rates,
# and those of a cluster, run alone, last. A new test program is in TESTS_OTHER by itself.
TESTS_ALONE := cluster fairness
TESTS_BESIDE := documentation faults filter ledger with_control_plane
TESTS_OTHER := $(filter-out $(TESTS_ALONE) $(TESTS_BESIDE),$(sort $(basename $(notdir \
	$(wildcard */tests/*.rs */*/tests/*.rs) $(patsubst %/main.rs,%,$(wildcard */tests/*/main.rs */*/tests/*/main.rs))))))

# How many faults `make test-cluster` makes.
FAULTS ?= 200

# How many cases `make test-oauth-differential` compares.
OAUTH_CASES ?= 100000

# How many requests `make test-mcp-differential` sends.
MCP_CASES ?= 100000

# How many seconds `make soak-oracles` sends requests.
SECONDS ?= 600

# For builds in parallel: the module's last step keeps one core busy for a minute. Each cargo counts its own jobs: it
# does not get make's count, which it would look for in MAKEFLAGS.
SIDE_BY_SIDE := --no-print-directory --jobs=4
export CARGO_MAKEFLAGS :=

.DEFAULT_GOAL := help
.PHONY: help run test build build-tests test-beside test-other build-with-demo interoperability wasm neighbour alerts lint lint-cluster-commands lint-footprint lint-envoy-gateway lint-kubernetes lint-mesh lint-shell lint-words reference bench bench-known bench-needs-audit bench-needs-audit-query bench-needs-cluster bench-needs-cost bench-needs-filter bench-needs-instructions bench-needs-issuer bench-needs-k6 bench-needs-ledger bench-needs-log bench-needs-memory bench-needs-peers bench-needs-performance bench-needs-proxy bench-needs-revocation bench-needs-rules bench-needs-scaling bench-needs-signatures bench-needs-snapshot bench-needs-stalls bench-needs-token soak soak-oracles fuzz mutants clean parts rust envoy test-arm64 oci lint-dockerfiles test-cluster test-oauth-differential test-mcp-differential test-mesh test-oauth test-mcp test-agents test-packages screenshots lint-compose lint-systemd lint-istio lint-performance release etcd

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: rust ## Watch a real Envoy allow and deny delegations: builds all, then runs the demo
	@$(MAKE) $(SIDE_BY_SIDE) build-with-demo wasm envoy
	@echo "==> Starting the demo"
	@target/release/demo

# With the command line tool and control plane of the test build, which checks for overflows.
test test-beside test-other: export CREDENCE_BIN := $(CURDIR)/target/debug/credence
# Writing incremental data takes a third of the build, and the tests are built only once. For edits, set it to 1.
test: export CARGO_INCREMENTAL ?= 0
# For each of the two test programs. Tests wait more than they compute.
test: export RUST_TEST_THREADS ?= $(shell expr 1 + "$$(nproc)")
test: rust ## Build all and run every test, end to end against a real Envoy too
	@scripts/setup-tests.sh
	@$(MAKE) $(SIDE_BY_SIDE) build-tests neighbour envoy interoperability etcd alerts
	@echo "==> Running the tests: the output of each half appears when it ends"
	@$(MAKE) $(SIDE_BY_SIDE) --output-sync --keep-going test-other test-beside
	@cargo test --locked --workspace $(TESTS_ALONE:%=--test %)
	@scripts/test-cluster.sh --briefly 6 1

test-other:
	@cargo test --locked --no-fail-fast --workspace --lib --bins $(TESTS_OTHER:%=--test %)

test-beside:
	@cargo test --locked --no-fail-fast --workspace $(TESTS_BESIDE:%=--test %)

test-mesh: build wasm envoy ## Have a real Istio deliver envoy-config/istio to real proxies: builds Istio once, some eight minutes
	@scripts/test-mesh.sh

test-oauth: build wasm envoy ## Have real OAuth issuers and clients, and an MCP client and server, use the filter unmodified
	@scripts/test-oauth.sh

test-packages: build wasm envoy ## Build, pack, install and test the packages for agents' developers: python/ and typescript/
	@scripts/build-wasm.sh agent
	@cargo build --locked --release -p credence-e2e --example packages-matrix
	@scripts/test-packages.sh

test-mcp: build wasm envoy ## Have MCP's conformance suite and the clients and servers of its SDKs use the filter unmodified
	@scripts/test-mcp.sh

test-agents: build wasm envoy ## Have unmodified clients act through the proxy, as a user who cannot read its key: needs root
	@scripts/test-agents.sh

screenshots: build wasm envoy ## Take the pictures of the issuer's pages: docs/pictures/issuer-*.png
	@scripts/screenshots.sh

build-with-demo: rust
	@echo "==> Building credence and the demo"
	@cargo build --locked --release -p credence -p credence-e2e --bin credence --bin demo

build-tests: rust
	@echo "==> Building the tests"
	@cargo test --locked $(TESTS) --no-run --quiet

# Third-party software and test vectors for the tests, most of them downloads.
interoperability:
	@scripts/setup-vectors.sh
	@scripts/setup-interop.sh python node go sse scim openapi tlog evidence oci \
		oracles-node oracles-python oracles-go oracles-php oracles-spring >/dev/null

# Without Go, the tests that need it are skipped, and say so.
etcd:
	@scripts/setup-etcd.sh >/dev/null || [ $$? = 3 ]

build: rust ## Build the command line tool and control plane: target/release/credence, or target/dist/credence with PROFILE=dist
	@echo "==> Building credence"
	@cargo build --locked --profile $(PROFILE) -p credence

wasm: rust ## Build the filter that Envoy loads: build/credence-filter.wasm, and -mcp.wasm, which also reads answers
	@scripts/build-wasm.sh filter
	@scripts/build-wasm.sh filter-mcp

# A plugin beside the filter, for the end-to-end tests.
neighbour: wasm
	@scripts/build-wasm.sh neighbour

oci: wasm ## Pack the filter for a registry, for Istio and Envoy Gateway: build/oci, and the digests to pin it by
	@scripts/pack-module.sh

release: rust ## Put together what a release page carries: build/release/VERSION
	@scripts/release.sh

test-cluster: rust wasm envoy etcd ## Break a cluster of replicas and etcd again and again, and check what clients see: make test-cluster FAULTS=200
	@scripts/test-cluster.sh $(FAULTS) $(SEED)

test-oauth-differential: build ## Compare access tokens and DPoP proofs with a second verifier: make test-oauth-differential OAUTH_CASES=100000
	@scripts/test-oauth-differential.sh $(OAUTH_CASES) $(SEED)

test-mcp-differential: build wasm envoy ## Send generated MCP requests through the filter to the SDKs' servers: make test-mcp-differential MCP_CASES=100000, or with SEED=1
	@scripts/test-mcp-differential.sh $(MCP_CASES) $(SEED)

test-arm64: wasm ## Run the demo and end-to-end tests as on arm64, emulated; builds all for it first
	@scripts/test-arm64.sh

lint: lint-shell lint-words lint-performance lint-footprint lint-kubernetes lint-cluster-commands lint-dockerfiles alerts lint-compose lint-systemd lint-mesh ## Format, clippy, documentation, dependencies and scripts: all without a warning
	@scripts/setup-rust.sh lint
	@echo "==> Formatting"
	@cargo fmt --all --check
	@cargo fmt --check --manifest-path loadtest/noop/Cargo.toml
	@cargo fmt --check --manifest-path loadtest/calls/Cargo.toml
	@cargo fmt --check --manifest-path e2e/neighbour/Cargo.toml
	@cargo fmt --check --manifest-path fuzz/Cargo.toml
	@echo "==> Import circles"
	@scripts/count-code.sh --check
	@echo "==> Clippy"
	@cargo clippy --locked --workspace --all-targets -- -D warnings
	@echo "==> Clippy for the code that is built for Wasm only"
	@scripts/wasm-cargo.sh clippy --locked -p credence-filter -- -D warnings >/dev/null
	@scripts/wasm-cargo.sh clippy --locked --manifest-path loadtest/noop/Cargo.toml -- -D warnings >/dev/null
	@scripts/wasm-cargo.sh clippy --locked --manifest-path loadtest/calls/Cargo.toml -- -D warnings >/dev/null
	@scripts/wasm-cargo.sh clippy --locked --manifest-path e2e/neighbour/Cargo.toml -- -D warnings >/dev/null
	@echo "==> Documentation"
	@RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
	@echo "==> Dependencies"
	@"$$(scripts/setup-cargo-deny.sh)" --locked check bans licenses sources

lint-shell:
	@if command -v shellcheck >/dev/null; then echo "==> Scripts" && shellcheck scripts/*.sh envoy-config/compose/*.sh .ci/run; \
	else echo "==> Scripts: skipped, shellcheck is not installed"; fi

reference: build ## Write what the code knows into docs/reference
	@scripts/reference.py

lint-words: build
	@echo "==> Words, and the generated parts of docs/reference"
	@scripts/words.py --check
	@scripts/reference.py --check

lint-footprint: build wasm envoy
	@echo "==> What every proxy pays for the filter"
	@loadtest/footprint

lint-performance:
	@echo "==> Figures of docs/performance.md"
	@loadtest/performance-page --check

# The first run builds Kubernetes' own checks, which takes minutes.
lint-kubernetes: build
	@echo "==> Manifests and chart"
	@scripts/lint-kubernetes.sh

# The first run builds kubectl and helm, which takes minutes.
lint-cluster-commands: build
	@echo "==> Commands for a cluster"
	@scripts/lint-cluster-commands.sh

# Checks whose first run takes a long build.
lint-mesh: lint-envoy-gateway lint-istio

lint-envoy-gateway:
	@echo "==> Envoy Gateway's resources"
	@scripts/lint-envoy-gateway.sh

lint-istio: build wasm envoy
	@echo "==> Istio's resources"
	@scripts/lint-istio.sh

alerts:
	@scripts/check-alerts.sh

lint-dockerfiles:
	@echo "==> Dockerfiles"
	@scripts/lint-dockerfiles.sh

lint-systemd: build
	@echo "==> Commands for a server, and the unit"
	@scripts/lint-systemd.sh

# The first time it builds Docker Compose, which takes a minute or two.
lint-compose: build wasm envoy
	@scripts/lint-compose.sh

bench: export CREDENCE_BIN := $(CURDIR)/target/dist/credence
bench: bench-known ## Measure against a peer in the same run: make bench BENCH=filter, or audit, audit-query, cluster, cost, instructions, issuer, k6, ledger, log, memory, peers, performance, proxy, revocation, rules, scaling, signatures, snapshot, stalls, token
	@$(MAKE) --no-print-directory bench-needs-$(BENCH) PROFILE=dist
	@"loadtest/bench-$(BENCH)"

bench-needs-audit-query: rust
	@cargo build --locked --release -p credence-ledger --example audit-query

bench-needs-filter: build wasm envoy
	@cargo build --locked --release -p credence-pool
	@scripts/build-wasm.sh noop
	@scripts/build-wasm.sh calls
	@scripts/setup-bench.sh

bench-needs-instructions: build wasm envoy
	@scripts/build-wasm.sh calls
	@scripts/setup-bench.sh valgrind

bench-needs-issuer: build wasm envoy
	@cargo build --locked --release -p credence-e2e --example consent-load

bench-needs-proxy: build

bench-needs-cluster: build wasm envoy etcd
	@cargo build --locked --release -p credence-control-plane --example log-load
	@cargo build --locked --release -p credence-e2e --example cluster-figures

bench-needs-cost: build wasm envoy
	@scripts/setup-bench.sh

bench-needs-audit: build wasm envoy
	@scripts/setup-bench.sh

bench-needs-k6: build wasm envoy
	@scripts/setup-bench.sh
	@cargo build --locked --release -p credence-pool
	@scripts/setup-k6.sh >/dev/null

bench-needs-ledger: build
	@cargo build --locked --release -p credence-control-plane --example ledger-load

bench-needs-log: build
	@cargo build --locked --release -p credence-control-plane --example log-load

bench-needs-memory: build wasm envoy
	@scripts/setup-bench.sh
	@cargo build --locked --release -p credence-e2e --example mint-many

bench-needs-peers: build wasm envoy
	@scripts/build-wasm.sh noop
	@scripts/setup-bench.sh
	@scripts/setup-authorizer.sh >/dev/null
	@cargo build --locked --release -p credence-e2e --example paced-load

bench-needs-performance: bench-needs-peers bench-needs-scaling bench-needs-token bench-needs-memory bench-needs-revocation bench-needs-ledger

bench-needs-stalls: build
	@scripts/setup-bench.sh
	@cargo build --locked --release -p credence-e2e --example stalls

bench-needs-revocation: build wasm envoy
	@scripts/setup-bench.sh
	@cargo build --locked --release -p credence-e2e --example propagation

bench-needs-rules: build wasm envoy
	@scripts/setup-bench.sh

bench-needs-scaling: build wasm envoy
	@scripts/build-wasm.sh noop
	@scripts/build-wasm.sh calls
	@scripts/setup-bench.sh
	@cargo build --locked --release -p credence-e2e --example mint-many --example paced-load --example serve-logs

bench-needs-signatures: build
	@cargo build --locked --release -p credence-control-plane --example record-chains

bench-needs-snapshot: build wasm envoy
	@cargo build --locked --release -p credence-e2e --example load-snapshot

bench-needs-token: rust

soak: build wasm envoy ## Run the long tests: those marked #[ignore], and many generated MCP requests
	@scripts/soak.sh
	@echo "==> Building the filter twice"
	@scripts/check-reproducible.sh

soak-oracles: build wasm envoy ## Send generated requests through the filter to real services: make soak-oracles SECONDS=600, or with SEED=1
	@cargo run --locked --release -p credence-e2e --example soak-oracles -- $(SECONDS) $(SEED)

fuzz: ## Fuzz what reads untrusted input: all targets, FUZZ_SECONDS=60 each, or make fuzz FUZZ_TARGET=chain
	@scripts/fuzz.sh

mutants: rust ## Check that each mutant of key-tables fails a test
	@scripts/mutants.sh

clean: ## Remove what was built, but not the installed tools (.tools)
	rm -rf build target loadtest/noop/target loadtest/calls/target e2e/neighbour/target

# First, before a build for a benchmark that does not exist.
bench-known:
	@test -x "loadtest/bench-$(BENCH)" || { echo "error: there is no benchmark '$(BENCH)'; there are:" \
		$(patsubst loadtest/bench-%,%,$(wildcard loadtest/bench-*)) >&2; exit 1; }

parts: rust
	@$(MAKE) $(SIDE_BY_SIDE) build wasm envoy

rust:
	@scripts/setup-rust.sh

envoy:
	@scripts/setup-envoy.sh >/dev/null
