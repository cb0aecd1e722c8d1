#!/usr/bin/env bash
# Makes sure that egctl is in .tools: the tool of the Envoy Gateway version in interop/kubernetes/definitions.txt.
# Prints its path.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local module version sum found folder egctl old
    read -r module version sum _ < <(grep '^github.com/envoyproxy/gateway ' "$ROOT/interop/kubernetes/definitions.txt")
    egctl=$TOOLS/egctl-$version
    if [ ! -x "$egctl" ]; then
        say "Building egctl $version (minutes)"
        mkdir -p "$TOOLS"
        scratch=$(mktemp -d "$TOOLS/egctl.XXXXXX")
        trap 'rm -rf "$scratch"' EXIT
        found=$(cd "$scratch" && GOTOOLCHAIN=local GOWORK=off GOFLAGS=-mod=mod GOSUMDB=off go mod download -json "$module@$version") ||
            fail "could not download $module" "Check the network and the setting of GOPROXY."
        [ "$(member Sum "$found")" = "$sum" ] ||
            fail "the downloaded $module is not the pinned one (its sum differs from interop/kubernetes/definitions.txt)"
        folder=$(member Dir "$found")
        # In its own module, whose go.sum pins all dependencies.
        GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 go -C "$folder" build -mod=readonly -buildvcs=false -p 1 -ldflags='-s -w' \
            -o "$scratch/egctl" ./cmd/egctl || fail "could not build egctl" "See the message above."
        # Last and in one step: this path never has an incomplete file.
        mv "$scratch/egctl" "$egctl"
        for old in "$TOOLS"/egctl-*; do
            [ "$old" = "$egctl" ] || rm -f "$old"
        done
    fi
    echo "$egctl"
}

main
