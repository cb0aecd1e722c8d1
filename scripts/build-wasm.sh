#!/usr/bin/env bash
# Builds a Wasm module:  build-wasm.sh (filter|filter-mcp|agent|noop|calls|neighbour)  ->  build/credence-filter.wasm, ...
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    case ${1:-} in
        filter) build credence-filter "$ROOT" ;;
        filter-mcp) build credence-filter "$ROOT" mcp answers ;; # the filter that also reads answers
        agent) build credence-agent-wasm "$ROOT" ;; # what the Python and TypeScript packages ship
        noop) build noop "$ROOT/loadtest/noop" ;; # a module that does nothing, to measure the cost of Wasm itself
        calls) build calls "$ROOT/loadtest/calls" ;; # one that only makes as many calls between Envoy and Wasm as the filter
        neighbour) build neighbour "$ROOT/e2e/neighbour" ;; # a plugin beside the filter, for the end-to-end tests
        *) fail "unknown module '${1:-}'" "Use:  $0 (filter|filter-mcp|agent|noop|calls|neighbour)" ;;
    esac
}

# build PACKAGE FOLDER [NAME FEATURE]: the folder holds the Cargo.toml of its workspace.
build() {
    local package=$1 folder=$2 artefacts built module=$ROOT/build/$1${3:+-$3}.wasm
    say "Building ${module##*/}"
    artefacts=$("$ROOT/scripts/wasm-cargo.sh" build --locked --profile wasm --manifest-path "$folder/Cargo.toml" -p "$package" \
        ${4:+--features "$4"})
    built=$artefacts/wasm/${package//-/_}.wasm
    install_if_changed "$built" "$module"
    say "$module: $(wc -c <"$module") bytes, SHA-256 $(sha256sum "$module" | cut -d' ' -f1)"
}

# An unchanged module keeps its time, so that programs that watch the file (Envoy, make) see only real changes.
install_if_changed() {
    cmp -s "$1" "$2" && return
    mkdir -p "$(dirname "$2")"
    cp "$1" "$2.new"
    mv "$2.new" "$2"
    say "$2 is new"
}

main "$@"
