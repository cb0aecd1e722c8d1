#!/usr/bin/env bash
# Makes sure that there is a Rust compiler for this machine that is new enough for the workspace, and a C linker for it.
# With the argument `lint`, also rustfmt and clippy.
set -euo pipefail
. "$(dirname "$0")/common.sh"

if ! have cargo && ! can_install_packages; then
    fail "cargo is not installed" "With rustup (https://rustup.rs), or on Debian or Ubuntu:  sudo apt-get install cargo-web rustc-web"
fi
have cargo || install_packages "building Credence" cargo-web rustc-web
have cc || install_packages "linking Rust programs" gcc libc6-dev
check_rust_version rustc

if [ "${1:-}" = lint ] && ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
    fail "rustfmt and clippy are needed" \
        "With rustup:           rustup component add rustfmt clippy" \
        "or on Debian, Ubuntu:  sudo apt-get install rustfmt-web rust-web-clippy"
fi
