#!/usr/bin/env bash
# Has Envoy Gateway's own tool, egctl, validate the resources for it. The first time it builds egctl, which takes minutes.
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
    # As egctl's home: it reads what a cluster's user has set.
    export HOME=$scratch
    cd "$ROOT/envoy-config/envoy-gateway"
    local file
    for file in *.yaml; do
        is_valid "$egctl" "$file"
    done
    a_mistake_is_found "$egctl"
}

# It says what is wrong in its output only, whatever its exit code; that nothing is, in green, which no text of the file is.
is_valid() {
    local said
    said=$("$1" experimental validate --file "$2" 2>&1) || true
    [[ $said == *$'\e[32mOK\e[0m'* ]] || fail "egctl does not take $2:" "$said"
}

a_mistake_is_found() {
    sed 's/failOpen: false/failShut: true/' credence.yaml >"$scratch/wrong.yaml"
    ! (is_valid "$1" "$scratch/wrong.yaml") 2>/dev/null || fail "egctl takes what is wrong"
}

main
