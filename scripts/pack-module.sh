#!/usr/bin/env bash
# Packs build/credence-filter.wasm for a registry (build/oci) and prints how to push and to pin it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

require python3 python3 "packing the module"
cd "$ROOT"
scripts/module-layouts.py build/credence-filter.wasm build/oci
say "The first is the digest of the file, for an http(s):// or file:// address; the others are the manifests', for an oci:// one." \
    "Push one:  crane push build/oci/compat IMAGE:TAG"
