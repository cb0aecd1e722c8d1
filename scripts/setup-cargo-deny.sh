#!/usr/bin/env bash
# Makes sure that the pinned cargo-deny is in .tools. Prints its path.
set -euo pipefail
. "$(dirname "$0")/common.sh"

home=$TOOLS/cargo-deny-$CARGO_DENY_VERSION
if [ ! -x "$home/bin/cargo-deny" ]; then
    say "Building cargo-deny $CARGO_DENY_VERSION: once, a few minutes"
    # Outside of the workspace's target folder, whose settings and clean-ups do not apply here.
    CARGO_TARGET_DIR=$home/target cargo install --locked --version "$CARGO_DENY_VERSION" --root "$home" cargo-deny >&2
    rm -rf "$home/target"
fi
echo "$home/bin/cargo-deny"
