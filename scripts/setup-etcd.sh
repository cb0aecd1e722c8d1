#!/usr/bin/env bash
# Makes sure that etcd, etcdctl and etcdutl are in .tools/etcd, in the version that interop/etcd pins. Prints the folder; if
# there is no Go that is new enough to build them, prints why and exits with 3.
set -euo pipefail
. "$(dirname "$0")/common.sh"

home=$TOOLS/etcd
source=$ROOT/interop/etcd

main() {
    local pinned
    if ! builds_with_go interop/etcd; then
        echo "etcd cannot be built without Go, in the version that interop/etcd/go.mod names, or a newer one"
        exit 3
    fi
    pinned=$(sha256sum <"$source/go.sum")
    if [ "$(cat "$home/pinned" 2>/dev/null)" != "$pinned" ]; then
        mkdir -p "$TOOLS"
        scratch=$(mktemp -d "$TOOLS/etcd.XXXXXX")
        trap 'rm -rf "$scratch"' EXIT
        mkdir "$scratch/home"
        say "Building etcd: once, two minutes"
        build etcd server
        build etcdctl etcdctl
        build etcdutl etcdutl
        echo "$pinned" >"$scratch/home/pinned"
        rm -rf "$home"
        mv -T "$scratch/home" "$home" 2>/dev/null || [ -x "$home/etcdutl" ] ||
            fail "could not move $scratch/home to $home" "Remove $home if it is there, and run this again."
    fi
    echo "$home"
}

# build NAME MODULE
build() {
    GOTOOLCHAIN=local CGO_ENABLED=0 go -C "$source" build -trimpath -mod=readonly -ldflags "-s -w" \
        -o "$scratch/home/$1" "go.etcd.io/etcd/$2/v3" >&2 || fail "could not build $1" "Check the network and the message above."
}

main
