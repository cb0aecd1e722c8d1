#!/usr/bin/env bash
# Runs the demo and end-to-end tests as on an arm64 machine. This machine builds Credence and the tests for arm64, Envoy
# is downloaded, and qemu emulates all three. Emulation is slow, so only tests that do not measure time run.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local machine=$ROOT/build/arm64 envoy built
    install_missing
    envoy=$("$ROOT/scripts/setup-envoy.sh" aarch64)
    mkdir -p "$machine"
    emulated "$machine/envoy" "$envoy"

    say "Building Credence, the demo and the tests for arm64 (the first time everything, with the standard library)"
    built=$(cargo_arm64 build --bin credence --bin demo --test=filter)
    emulated "$machine/credence" "$built/release/credence"

    export CREDENCE_ENVOY=$machine/envoy CREDENCE_BIN=$machine/credence CREDENCE_WASM=$ROOT/build/credence-filter.wasm
    # The tests' limit in seconds: Envoy compiles the module again in each of them.
    export CREDENCE_PATIENCE=180
    say "The demo on arm64"
    "$EMULATOR" -L "$LIBRARIES" "$built/release/demo"
    say "The end-to-end tests on arm64: ${TESTS[*]}"
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$EMULATOR -L $LIBRARIES"
    cargo_arm64 test --test=filter -- --test-threads=1 "${TESTS[@]}" >/dev/null
}

# cargo_arm64 COMMAND ARGUMENT...
cargo_arm64() {
    "$ROOT/scripts/cross-cargo.sh" aarch64-unknown-linux-gnu "$1" --locked --release -p credence -p credence-e2e "${@:2}"
}

# emulated FILE PROGRAM: wraps the program so that this machine can start it; the process keeps the started id.
emulated() {
    printf '#!/bin/sh\nexec %s -L %s "%s" "$@"\n' "$EMULATOR" "$LIBRARIES" "$2" >"$1.new"
    chmod +x "$1.new"
    mv "$1.new" "$1"
}

install_missing() {
    local missing=()
    have "$EMULATOR" || missing+=(qemu-user)
    # For the emulated machine: libc and its loader, and the compiler's libraries for Rust programs.
    [ -e "$LIBRARIES/lib/ld-linux-aarch64.so.1" ] || missing+=(libc6-arm64-cross)
    [ -e "$LIBRARIES/lib/libgcc_s.so.1" ] || missing+=(libgcc-s1-arm64-cross)
    ((${#missing[@]})) || return 0
    install_packages "running arm64 programs" "${missing[@]}"
}

EMULATOR=qemu-aarch64
LIBRARIES=/usr/aarch64-linux-gnu
TESTS=(bodies:: decisions::)

main
