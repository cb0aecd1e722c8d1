#!/usr/bin/env bash
# Runs the tests in which a real Istio delivers envoy-config/istio to real proxies; builds Istio first if it is not there.
#
# The Makefile says where Envoy, the filter and the credence program are.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local prepared as_root=()
    require unshare util-linux "giving each proxy a folder of its own"
    prepared=$("$ROOT/scripts/setup-interop.sh" istio)
    case $prepared in
        "ready istio "*) ;;
        *) fail "Istio can not be built without Go, in the version that interop/istio/go.mod names, or a newer one" \
            "https://go.dev/dl has it." ;;
    esac
    ((EUID == 0)) || as_root=(--user --map-root-user)
    # A mount namespace is what the agents' fixed paths ask for; in one for processes nothing of a proxy outlives it.
    unshare --mount --pid --fork "${as_root[@]}" true 2>/dev/null ||
        fail "this machine allows no mount and process namespaces, which each proxy needs" \
            "As root in a container: run it with the capability SYS_ADMIN. Otherwise: allow user namespaces."

    say "Running the tests in the mesh"
    CREDENCE_ISTIO=${prepared#ready istio } cargo test --locked -p credence-e2e --test mesh -- --ignored "$@"
}

main "$@"
