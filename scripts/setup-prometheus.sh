#!/usr/bin/env bash
# Makes sure that promtool, and Prometheus itself where it can be had, are in .tools. Prints their folder; or, where there is
# no way to them, why, and ends with 3.
#
# The distribution's package has both. It is unpacked and not installed: nobody who wants to check a rule wants a server that
# starts with his machine. Where there is no such package, Go builds promtool alone, from what interop/prometheus pins.
set -euo pipefail
. "$(dirname "$0")/common.sh"

home=$TOOLS/prometheus

main() {
    if [ ! -x "$home/promtool" ]; then
        mkdir -p "$TOOLS"
        scratch=$(mktemp -d "$TOOLS/prometheus.XXXXXX")
        trap 'rm -rf "$scratch"' EXIT
        mkdir "$scratch/home"
        if have apt-get && have dpkg-deb && from_package; then
            :
        elif builds_with_go interop/prometheus; then
            from_source
        else
            echo "neither the package prometheus nor a Go that is new enough to build promtool can be had"
            exit 3
        fi
        # Last and in one step: what stands there is whole, whoever does the same meanwhile.
        mv -T "$scratch/home" "$home" 2>/dev/null || [ -x "$home/promtool" ] ||
            fail "could not move $scratch/home to $home" "Remove $home if it is there, and run this again."
    fi
    echo "$home"
}

from_package() {
    say "Fetching the package prometheus, for checking alerts and dashboards (about 20 MB)"
    (
        cd "$scratch"
        apt-get download -qq prometheus >/dev/null 2>&1 || {
            can_install_packages && as_root apt-get update -qq >/dev/null 2>&1 && apt-get download -qq prometheus >/dev/null 2>&1
        } || return 1
        dpkg-deb --extract prometheus_*.deb unpacked
        mv unpacked/usr/bin/promtool unpacked/usr/bin/prometheus home/
    )
}

from_source() {
    say "Building promtool: once, four minutes or more and 3 GB of memory"
    GOTOOLCHAIN=local CGO_ENABLED=0 go -C "$ROOT/interop/prometheus" build -trimpath -mod=readonly -p 1 -ldflags "-s -w" \
        -o "$scratch/home/promtool" github.com/prometheus/prometheus/cmd/promtool >&2 ||
        fail "could not build promtool" "Check the network and the message above."
}

main
