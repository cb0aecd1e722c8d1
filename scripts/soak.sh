#!/usr/bin/env bash
# Runs the long tests, those marked #[ignore]. Those in the mesh stand on Istio: it is built first if it is not there, and
# where it cannot be, they are left out, which is said at the end.
#
# The Makefile says where Envoy, the filter and the credence program are.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local prepared others left_out=
    prepared=$("$ROOT/scripts/setup-interop.sh" istio)
    say "Running the long tests"
    run --workspace --exclude credence-e2e
    mapfile -t others < <(all_but_mesh)
    run -p credence-e2e --lib --bins "${others[@]}"
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

run() { cargo test --locked --release "$@" -- --ignored; }

# all_but_mesh: names the other tests of e2e, for cargo can leave a package out, but no single test.
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
