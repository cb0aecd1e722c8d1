#!/usr/bin/env bash
# Makes sure that loadtest/peers/authorizer is in .tools: OPA's engine behind Envoy's ext_authz. Prints its path.
set -euo pipefail
. "$(dirname "$0")/common.sh"

source=$ROOT/loadtest/peers/authorizer

main() {
    local program old
    builds_with_go loadtest/peers/authorizer ||
        fail "Go, which builds the authorizer, is not installed or too old" \
            "Install Go $(sed -n 's/^go //p' "$source/go.mod") or newer: https://go.dev/dl"
    program=$TOOLS/authorizer-$(cat "$source"/{main.go,policy.rego,go.mod,go.sum} | sha256sum | cut -c1-12)
    if [ ! -x "$program" ]; then
        say "Building the authorizer with OPA $(version): once, a minute or two"
        mkdir -p "$TOOLS"
        scratch=$(mktemp -d "$TOOLS/building-authorizer.XXXXXX")
        trap 'rm -rf "$scratch"' EXIT
        GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 go -C "$source" build -trimpath -mod=readonly -buildvcs=false -ldflags "-s -w" \
            -o "$scratch/authorizer" . >&2 || fail "could not build the authorizer" "Check the network and the message above."
        # Last and in one step: this path never has an incomplete file.
        mv -T "$scratch/authorizer" "$program"
        for old in "$TOOLS"/authorizer-*; do
            [ "$old" = "$program" ] || rm -f "$old"
        done
    fi
    echo "$program"
}

version() { sed -n 's#^\tgithub.com/open-policy-agent/opa ##p' "$source/go.mod"; }

main
