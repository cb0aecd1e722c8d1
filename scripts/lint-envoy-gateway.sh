#!/usr/bin/env bash
# Has Envoy Gateway's own tool, egctl, validate the resources for it. The first run builds egctl, which takes minutes.
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
    # Its own home: egctl reads the settings of a cluster's user.
    export HOME=$scratch
    cd "$ROOT/envoy-config/envoy-gateway"
    local file
    for file in *.yaml; do
        is_valid "$egctl" "$file"
    done
    a_mistake_is_found "$egctl"
}

# egctl reports errors only in its output, with any exit code. It prints OK in green, which no text of the file
# contains.
is_valid() {
    local said
    said=$("$1" experimental validate --file "$2" 2>&1) || true
    [[ $said == *$'\e[32mOK\e[0m'* ]] || fail "egctl does not accept $2:" "$said"
}

a_mistake_is_found() {
    sed 's/failOpen: false/failShut: true/' credence.yaml >"$scratch/wrong.yaml"
    ! (is_valid "$1" "$scratch/wrong.yaml") 2>/dev/null || fail "egctl accepts an invalid file"
}

main
