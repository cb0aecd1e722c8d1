#!/usr/bin/env bash
# Runs cargo for the Wasm target:  wasm-cargo.sh (build|clippy|check) [ARGUMENT...]
exec "$(dirname "$0")/cross-cargo.sh" wasm32-unknown-unknown "$@"
