#!/usr/bin/env bash
# Packs build/credence-filter.wasm for a registry (build/oci), and the one for MCP (build/oci-mcp). Prints how to push and
# to pin them.
set -euo pipefail
. "$(dirname "$0")/common.sh"

require python3 python3 "packing the module"
cd "$ROOT"
scripts/module-layouts.py build/credence-filter.wasm build/oci
scripts/module-layouts.py build/credence-filter-mcp.wasm build/oci-mcp
say "The first is the digest of the file, for an http(s):// or file:// address; the others are the manifests', for an oci:// one." \
    "Push one:  crane push build/oci/compat IMAGE:TAG"
