#!/usr/bin/env bash
# Installs the pinned cargo-mutants into .tools if it is not there. Prints its path.
set -euo pipefail
. "$(dirname "$0")/common.sh"

home=$TOOLS/cargo-mutants-$CARGO_MUTANTS_VERSION
if [ ! -x "$home/bin/cargo-mutants" ]; then
    say "Building cargo-mutants $CARGO_MUTANTS_VERSION: once, a few minutes"
    # Not in the workspace's target folder: its settings and clean-ups do not apply here.
    CARGO_TARGET_DIR=$home/target cargo install --locked --version "$CARGO_MUTANTS_VERSION" --root "$home" cargo-mutants >&2
    rm -rf "$home/target"
fi
echo "$home/bin/cargo-mutants"
