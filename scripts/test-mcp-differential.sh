#!/usr/bin/env bash
# Sends generated MCP requests through the filter to servers on the official SDKs, and compares what they ran with the
# delegations:  scripts/test-mcp-differential.sh [CASES [SEED [FIRST]]]
# Without SEED, one is chosen at random. FIRST is the number of the first case. The last line is a JSON
# object of counts. Before, the comparison itself is tested: it must find requests that go around the filter.
#
# The Makefile sets the paths of Envoy, the filter and the credence program. interop/mcp pins the software.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$ROOT/scripts/mcp.sh"

main() {
    local cases=${1:-100000} seed=${2:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
    prepare_mcp
    say "Testing the comparison of MCP requests"
    node --test "$PROGRAMS/mcp/node/soak"/*.test.mjs >&2
    say "Comparing $cases MCP requests with seed $seed"
    exec node "$PROGRAMS/mcp/node/soak.mjs" "$cases" "$seed" "${@:3}"
}

main "$@"
