#!/usr/bin/env bash
# Breaks a cluster of three members of etcd, three replicas and two Envoys, fault after fault, and checks what its clients
# see: test-cluster.sh FAULTS [SEED]. e2e/examples/cluster-faults explains the checks and the figures in the last line.
#
# With --briefly, it makes only the run that must find nothing, and is skipped where the system does not allow it.
#
# The Makefile sets the paths of Envoy, the filter, etcd and the credence program.
set -euo pipefail
. "$(dirname "$0")/common.sh"

unshare=(unshare --user --map-root-user --net --mount)

main() {
    local briefly=
    if [ "${1-}" = --briefly ]; then
        briefly=1
        shift
    fi
    local faults=${1:?the count of faults is missing} seed=${2:-$(date +%s)}
    if ! have ip || ! "${unshare[@]}" true 2>/dev/null; then
        [ "$briefly" ] || fail "this system lets us have no network namespaces (${unshare[*]}), or has no ip" \
            "On Debian or Ubuntu:  sudo apt-get install iproute2"
        say "SKIPPED: faults of a cluster, because this system lets us have no network namespaces, or has no ip"
        return
    fi
    cargo build --locked --quiet -p credence-e2e --example cluster-faults
    if [ "$briefly" ]; then
        exec "${unshare[@]}" "$CARGO_TARGET_DIR/debug/examples/cluster-faults" "$faults" "$seed"
    fi
    say "Building a credence that answers pings without a quorum: its run must find violations"
    RUSTC_WORKSPACE_WRAPPER=$ROOT/scripts/without-quorum.sh cargo build --locked --quiet --release -p credence
    cp "$CARGO_TARGET_DIR/release/credence" "$ROOT/build/credence-without-quorum"
    cargo build --locked --quiet --release -p credence
    exec "${unshare[@]}" "$CARGO_TARGET_DIR/debug/examples/cluster-faults" "$faults" "$seed" \
        "$ROOT/build/credence-without-quorum"
}

main "$@"
