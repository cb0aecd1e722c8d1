#!/usr/bin/env bash
# Makes sure that promtool is in .tools, and Prometheus itself if possible. Prints their folder; if there is no way to
# get them, prints why and exits with 3.
#
# The distribution's package has both. It is unpacked but not installed, since an installed Prometheus would start with
# the machine. Without the package, Go builds only promtool, from the versions in interop/prometheus.
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
            echo "there is neither a package prometheus nor a Go that is new enough to build promtool"
            exit 3
        fi
        # Last and in one step: this path never has an incomplete folder, even if two runs do this at the same time.
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
