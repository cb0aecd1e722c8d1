#!/usr/bin/env bash
# Installs the pinned cargo-cyclonedx into .tools if it is not there. Prints its path.
set -euo pipefail
. "$(dirname "$0")/common.sh"

home=$TOOLS/cargo-cyclonedx-$CARGO_CYCLONEDX_VERSION
if [ ! -x "$home/bin/cargo-cyclonedx" ]; then
    say "Building cargo-cyclonedx $CARGO_CYCLONEDX_VERSION: once, a minute or two"
    # Not in the workspace's target folder: its settings and clean-ups do not apply here.
    CARGO_TARGET_DIR=$home/target cargo install --locked --version "$CARGO_CYCLONEDX_VERSION" --root "$home" cargo-cyclonedx >&2
    rm -rf "$home/target"
fi
echo "$home/bin/cargo-cyclonedx"
