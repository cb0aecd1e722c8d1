#!/usr/bin/env bash
# Runs the long tests: those marked #[ignore], and generated MCP requests. Those in the mesh need Istio, which is built
# first if it is missing. If it cannot be built, they are left out, and the last line says so.
#
# The Makefile sets the paths of Envoy, the filter and the credence program.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local prepared others left_out=
    prepared=$("$ROOT/scripts/setup-interop.sh" istio)
    say "Running the long tests"
    run --workspace --exclude credence-e2e
    mapfile -t others < <(all_but_mesh)
    run -p credence-e2e --lib --bins "${others[@]}"
    "$ROOT/scripts/test-mcp-differential.sh" "$MCP_CASES"
    case $prepared in
        "ready istio "*) can_isolate_proxies || left_out=$NO_ISOLATION ;;
        *) left_out=$NO_ISTIO ;;
    esac
    if [ -n "$left_out" ]; then
        say "Left out: the tests in the mesh (e2e/tests/mesh): $left_out"
    else
        CREDENCE_ISTIO=${prepared#ready istio } run -p credence-e2e --test mesh
    fi
}

# They take about six minutes.
MCP_CASES=300000

run() { cargo test --locked --release "$@" -- --ignored; }

# all_but_mesh: names the other tests of e2e. cargo can leave out a package, but not a single test.
all_but_mesh() {
    local file name
    for file in "$ROOT"/e2e/tests/*.rs "$ROOT"/e2e/tests/*/main.rs; do
        name=${file#"$ROOT/e2e/tests/"}
        name=${name%/main.rs}
        name=${name%.rs}
        [ "$name" = mesh ] || printf '%s\n' --test "$name"
    done
}

main
