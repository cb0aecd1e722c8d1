#!/usr/bin/env bash
# Makes sure that the k6 of loadtest/k6/program is in .tools: the pinned k6, which can also sign proofs with Ed25519.
# Prints its path.
set -euo pipefail
. "$(dirname "$0")/common.sh"

source=$ROOT/loadtest/k6/program

main() {
    local k6 old
    builds_with_go loadtest/k6/program ||
        fail "Go, which builds k6, is not installed or too old" "Install Go $(sed -n 's/^go //p' "$source/go.mod") or newer: https://go.dev/dl"
    k6=$TOOLS/k6-$(version)-$(cat "$source"/{*.go,go.mod,go.sum} | sha256sum | cut -c1-12)
    if [ ! -x "$k6" ]; then
        say "Building k6 $(version): once, a minute or two"
        mkdir -p "$TOOLS"
        scratch=$(mktemp -d "$TOOLS/building-k6.XXXXXX")
        trap 'rm -rf "$scratch"' EXIT
        GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 go -C "$source" build -trimpath -mod=readonly -buildvcs=false -p 1 -ldflags "-s -w" \
            -o "$scratch/k6" . >&2 || fail "could not build k6" "Check the network and the message above."
        # Last and in one step: this path never has an incomplete file.
        mv -T "$scratch/k6" "$k6"
        for old in "$TOOLS"/k6-*; do
            [ "$old" = "$k6" ] || rm -f "$old"
        done
    fi
    echo "$k6"
}

version() { sed -n 's#^require go.k6.io/k6 ##p' "$source/go.mod"; }

main
