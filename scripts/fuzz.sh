#!/usr/bin/env bash
# Runs the fuzz targets one after the other and prints the result of each:  scripts/fuzz.sh [TARGET...]
# FUZZ_SECONDS (60) is the time for each, FUZZ_TARGET a single target. Fails if there is a finding, or if no target ran.
set -euo pipefail
. "$(dirname "$0")/common.sh"

# Limits for one input, which takes milliseconds. Most of the memory is libFuzzer's own, for what it has found.
TIMEOUT_SECONDS=25
RSS_MB=4096
MALLOC_MB=64
# Longer inputs find nothing more: the limits of size are part of each input.
MAX_LENGTH=8192

seconds=${FUZZ_SECONDS:-60}
export RUSTUP_TOOLCHAIN=nightly CARGO_TARGET_DIR=$ROOT/target/fuzz

main() {
    [[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "FUZZ_SECONDS is '$seconds'" "Set it to the seconds for each target: a whole number, at least 1."
    cargo_fuzz=$("$ROOT/scripts/setup-fuzz.sh")
    cd "$ROOT"
    local known target findings=0
    known=$("$cargo_fuzz" fuzz list)
    local targets=("$@")
    if [ -n "${FUZZ_TARGET:-}" ]; then targets+=("$FUZZ_TARGET"); fi
    if ((${#targets[@]} == 0)); then mapfile -t targets <<<"$known"; fi
    for target in "${targets[@]}"; do
        grep -qxF -- "$target" <<<"$known" || fail "there is no fuzz target '$target'; there are: $(tr '\n' ' ' <<<"$known")"
    done

    say "Building the fuzz targets"
    # cargo-fuzz would silently change the lock file.
    cargo metadata --locked --format-version 1 --filter-platform "$(host)" \
        --manifest-path fuzz/Cargo.toml >/dev/null ||
        fail "fuzz/Cargo.lock does not fit the dependencies" "cargo update --workspace --manifest-path fuzz/Cargo.toml"
    "$cargo_fuzz" fuzz build || fail "the fuzz targets do not build: see the errors above"
    say "Fuzzing, $seconds seconds each"
    for target in "${targets[@]}"; do
        run "$target" || findings=$((findings + 1))
    done
    ((findings == 0)) || fail "$findings of ${#targets[@]} targets have a finding" \
        "Each is a file in fuzz/artifacts/TARGET; the log beside it has the error." \
        "fuzz/README.md says what to do with it."
}

# run TARGET: runs it and prints one line with the result; fails if there is a finding.
run() {
    local target=$1 artifacts=$ROOT/fuzz/artifacts/$1 status=0
    local found=$ROOT/fuzz/corpus/$target seeds log=$artifacts/log
    mkdir -p "$found" "$artifacts"
    seeds=$ROOT/delegation/tests/corpus/$target
    [ -d "$seeds" ] || seeds=$ROOT/decision/tests/corpus/$target
    # libFuzzer writes into the first folder only.
    "$CARGO_TARGET_DIR/$(host)/release/$target" "$found" "$seeds" \
        -max_total_time="$seconds" -timeout="$TIMEOUT_SECONDS" -rss_limit_mb="$RSS_MB" -malloc_limit_mb="$MALLOC_MB" \
        -detect_leaks=1 -len_control=100 -max_len="$MAX_LENGTH" -dict="$ROOT/fuzz/dictionaries/$target.dict" \
        -print_final_stats=1 -artifact_prefix="$artifacts/" >"$log" 2>&1 || status=$?

    local executions coverage took
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    coverage=$(sed -n 's/^#[0-9].* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    took=$(sed -n 's/^Done [0-9]* runs in \([0-9]*\) second.*/\1/p' "$log")
    if [ "$status" = 0 ] && [ "${executions:-0}" -gt 0 ]; then
        printf '%-10s %10s executions %6s edges covered %5s s   no finding\n' "$target" "$executions" "$coverage" "$took"
    else
        printf '%-10s %10s executions %6s edges covered           a finding: %s\n' "$target" "${executions:-?}" \
            "${coverage:-?}" "$(what "$log" "$status")"
        return 1
    fi
}

# what LOG STATUS: the finding in one line, and the path of its input.
what() {
    local panic input
    panic=$(grep -aA1 -m1 "panicked at\|^SUMMARY:\|^==.*ERROR:" "$1" | tr '\n' ' ' | cut -c1-200)
    input=$(sed -n 's/^.*Test unit written to \(.*\)$/\1/p' "$1" | tail -n 1)
    printf '%s (%s)' "${panic:-it ended with status $2: see $1}" "${input:-no input was written}"
}

host() { rustc -vV | sed -n 's/^host: //p'; }

main "$@"
