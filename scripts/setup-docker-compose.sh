#!/usr/bin/env bash
# Makes sure that the docker-compose pinned in interop/docker-compose is in .tools. Prints its path; if it cannot be
# built, prints why and exits with 3. It needs no Docker to check a file.
set -euo pipefail
. "$(dirname "$0")/common.sh"

package=github.com/docker/compose/v5
version=$(sed -n "s#^\t$package \(v[^ ]*\).*#\1#p" "$ROOT/interop/docker-compose/go.mod")
program=$TOOLS/docker-compose-$version
if [ ! -x "$program" ]; then
    builds_with_go interop/docker-compose || { echo "Go, which builds docker-compose, is not installed or too old" && exit 3; }
    say "Building docker-compose $version: once, a minute or two"
    mkdir -p "$TOOLS"
    scratch=$(mktemp -d "$TOOLS/docker-compose.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    GOTOOLCHAIN=local CGO_ENABLED=0 go -C "$ROOT/interop/docker-compose" build -trimpath -mod=readonly -p 1 -ldflags "-s -w" \
        -o "$scratch/docker-compose" "$package/cmd" >&2 ||
        fail "could not build docker-compose" "Check the network and the message above."
    mv -T "$scratch/docker-compose" "$program"
fi
echo "$program"
