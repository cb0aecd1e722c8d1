#!/usr/bin/env bash
# Validates the resources for Envoy Gateway with its own tool, egctl. The first run builds egctl, which takes minutes.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local egctl
    if ! builds_with_go interop/kubernetes; then
        say "Skipped: Go, which builds egctl, is not installed, or too old"
        return
    fi
    egctl=$("$ROOT/scripts/setup-egctl.sh")
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    # egctl reads the user's configuration from there.
    export HOME=$scratch
    cd "$ROOT/envoy-config/envoy-gateway"
    local file
    for file in gateway.yaml credence.yaml from-http.yaml; do
        is_valid "$egctl" "$file"
    done
    an_error_is_found "$egctl"
}

# egctl reports errors in its output only, not by its exit code. A valid file is a green OK, which no file contains.
is_valid() {
    local said
    said=$("$1" experimental validate --file "$2" 2>&1) || true
    [[ $said == *$'\e[32mOK\e[0m'* ]] || fail "egctl refuses $2:" "$said"
}

an_error_is_found() {
    sed 's/failOpen: false/failShut: true/' credence.yaml >"$scratch/wrong.yaml"
    ! (is_valid "$1" "$scratch/wrong.yaml") 2>/dev/null || fail "egctl accepts an invalid file"
}

main
