#!/usr/bin/env bash
# Mutation testing of key-tables/: changes one operator or result at a time, and fails if the tests still pass.
# key-tables/mutants.toml lists the mutants that are equivalent, each with its reason.
set -euo pipefail
. "$(dirname "$0")/common.sh"

cargo_mutants=$("$ROOT/scripts/setup-cargo-mutants.sh")
cd "$ROOT"
say "Testing the mutants of key-tables: some minutes"
mkdir -p target
# cargo-mutants changes a copy of the sources, whose paths differ. So its builds have their own folder.
CARGO_TARGET_DIR=$ROOT/target/mutants "$cargo_mutants" mutants --config key-tables/mutants.toml --output target \
    --package credence-key-tables --cargo-arg=--locked ||
    fail "a mutant survived, or the mutants could not be tested" "target/mutants.out has the log of each." \
        "Add a test that fails with it, or state in key-tables/mutants.toml why no test could."
