#!/usr/bin/env bash
# Runs the tests in which a real Istio delivers envoy-config/istio to real proxies; builds Istio first if it is missing.
#
# The Makefile sets the paths of Envoy, the filter and the credence program.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local prepared
    require unshare util-linux "giving each proxy a folder of its own"
    prepared=$("$ROOT/scripts/setup-interop.sh" istio)
    case $prepared in
        "ready istio "*) ;;
        *) fail "$NO_ISTIO" "https://go.dev/dl has it." ;;
    esac
    can_isolate_proxies || fail "$NO_ISOLATION" \
        "As root in a container: run it with the capability SYS_ADMIN. Otherwise: allow user namespaces."

    say "Running the tests in the mesh"
    CREDENCE_ISTIO=${prepared#ready istio } cargo test --locked -p credence-e2e --test mesh -- --ignored "$@"
}

main "$@"
