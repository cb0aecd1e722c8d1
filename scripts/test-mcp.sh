#!/usr/bin/env bash
# Runs MCP's conformance suite and the clients and servers of its SDKs, unmodified, with the real filter and control
# plane. Its last line is a JSON object of counts.
#
# The Makefile sets the paths of Envoy, the filter and the credence program. interop/mcp pins the software.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$ROOT/scripts/mcp.sh"

main() {
    prepare_mcp
    say "Running the conformance suite and the clients"
    exec node "$PROGRAMS/mcp/node/test.mjs"
}

main "$@"
