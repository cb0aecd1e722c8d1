#!/usr/bin/env bash
# Makes sure that the pinned cargo-fuzz is in .tools, and that there is a compiler for it. Prints its path.
set -euo pipefail
. "$(dirname "$0")/common.sh"

# Only a nightly compiler accepts the flags for sanitizers and coverage counters.
has_nightly() {
    have rustup && rustup run nightly rustc --version >/dev/null 2>&1
}

has_nightly || fail "fuzzing needs a nightly Rust compiler" \
    "With rustup (https://rustup.rs):  rustup toolchain install nightly --profile minimal"
have c++ || install_packages "building libFuzzer" g++

home=$TOOLS/cargo-fuzz-$CARGO_FUZZ_VERSION
if [ ! -x "$home/bin/cargo-fuzz" ]; then
    say "Building cargo-fuzz $CARGO_FUZZ_VERSION: once, about a minute"
    # Outside of the workspace's target folder, whose settings and clean-ups do not apply here.
    CARGO_TARGET_DIR=$home/target cargo install --locked --version "$CARGO_FUZZ_VERSION" --root "$home" cargo-fuzz >&2
    rm -rf "$home/target"
fi
echo "$home/bin/cargo-fuzz"
