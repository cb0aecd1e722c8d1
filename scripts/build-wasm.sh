#!/usr/bin/env bash
# Builds a Wasm module:  build-wasm.sh (filter|noop|calls|neighbour)  ->  build/credence-filter.wasm, build/noop.wasm, ...
set -euo pipefail
. "$(dirname "$0")/common.sh"

# The exports that Envoy needs of the filter. The SDK exports more; the filter has its own allocator instead of the
# SDK's `malloc`.
FILTER_EXPORTS=(
    memory _initialize proxy_abi_version_0_2_1 proxy_on_memory_allocate
    proxy_on_vm_start proxy_on_configure proxy_on_tick
    proxy_on_context_create proxy_on_done proxy_on_delete
    proxy_on_request_headers proxy_on_request_body proxy_on_request_trailers
    proxy_on_grpc_receive proxy_on_grpc_close
)

main() {
    case ${1:-} in
        filter) build credence-filter "$ROOT" "${FILTER_EXPORTS[@]}" ;;
        noop) build noop "$ROOT/loadtest/noop" ;; # a module that does nothing, to measure the cost of Wasm itself
        calls) build calls "$ROOT/loadtest/calls" ;; # one that only makes as many calls between Envoy and Wasm as the filter
        neighbour) build neighbour "$ROOT/e2e/neighbour" ;; # a plugin beside the filter, for the end-to-end tests
        *) fail "unknown module '${1:-}'" "Use:  $0 (filter|noop|calls|neighbour)" ;;
    esac
}

# build PACKAGE FOLDER [EXPORT...]: the folder holds the Cargo.toml of its workspace. Without names, all exports stay.
build() {
    local package=$1 folder=$2 artefacts built module=$ROOT/build/$1.wasm
    shift 2
    say "Building $package.wasm"
    artefacts=$("$ROOT/scripts/wasm-cargo.sh" build --locked --profile wasm --manifest-path "$folder/Cargo.toml" -p "$package")
    built=$artefacts/wasm/${package//-/_}.wasm
    if (($#)); then
        "$ROOT/scripts/prune-exports.py" "$built" "$built.pruned" "$@"
        built=$built.pruned
    fi
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
