#!/usr/bin/env bash
# Runs the commands that three pages print for a server, on overlays of this machine's folders, and has systemd check the
# units that they install. `sudo` and `systemctl` are stand-ins: what they start has the unit's command and
# user, but not its sandbox. CREDENCE_BIN names the program. Needs root, since the commands create a user.
set -euo pipefail
. "$(dirname "$0")/common.sh"

PAGE=docs/operate/control-plane.md
ISSUER_PAGE=docs/operate/issuer.md
PROXY_PAGE=docs/start/proxy.md
OVERLAYS=(/etc /usr/local /var/lib)

main() {
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    if ! have systemd-analyze; then
        say "SKIPPED systemd's check of the unit: systemd-analyze is not installed"
    elif ((EUID != 0)) || ! isolated true; then
        say "SKIPPED the commands of $PAGE for a server: they need root, and overlay file systems in namespaces"
    else
        isolated run_commands >"$scratch/said" 2>&1 || fail "the commands of $PAGE, $ISSUER_PAGE or $PROXY_PAGE for a server fail" "$(cat "$scratch/said")"
    fi
}

# isolated COMMAND...: with overlays, and a network and process ids of its own.
isolated() {
    unshare --mount --net --pid --fork --kill-child --mount-proc "${BASH_SOURCE[0]}" inside "$scratch" "$@" 2>&1
}

inside() {
    local folder
    scratch=$1
    shift
    mount -t tmpfs tmpfs "$scratch"
    for folder in "${OVERLAYS[@]}"; do
        mkdir -p "$scratch/overlay$folder"/{upper,work}
        mount -t overlay overlay -o "lowerdir=$folder,upperdir=$scratch/overlay$folder/upper,workdir=$scratch/overlay$folder/work" "$folder"
    done
    ip link set lo up
    "$@"
}

run_commands() {
    mkdir -p "$scratch"/{bin,target/dist}
    printf '%s\n' "$SUDO" >"$scratch/bin/sudo"
    printf '%s\n' "$SYSTEMCTL" >"$scratch/bin/systemctl"
    chmod +x "$scratch/bin"/*
    ln -s "$CREDENCE_BIN" "$scratch/target/dist/credence"
    ln -s "$ROOT/envoy-config" "$scratch/envoy-config"
    cd "$scratch"
    run_page "$PAGE" "# On the server"
    run_issuer
    run_proxy
    an_error_is_found
}

# With the page's first configuration. It starts without its provider and its control plane.
run_issuer() {
    awk '/^# Keycloak$/ { inside = 1 } /^```/ { inside = 0 } inside' "$ROOT/$ISSUER_PAGE" >issuer.yaml
    tee token client-secret passphrase <<<"correct horse battery staple" >/dev/null
    run_page "$ISSUER_PAGE" "# On the server, once"
}

# With the files that the page makes, for the service of docs/start/envoy.md.
run_proxy() {
    cat >envoy.yaml <"$ROOT/envoy-config/envoy.yaml"
    "$CREDENCE_BIN" keygen --out issuer.jwk >issuer.pub
    awk '/^credence proxy/ { exit } inside; /^```sh/ { inside = 1 }' "$ROOT/$PROXY_PAGE" >commands
    PATH=$scratch/target/dist:$PATH bash -ex -o pipefail commands
    run_page "$PROXY_PAGE" "# On the server, once"
}

# run_page PAGE START: runs the commands of the blocks whose first line starts so.
run_page() {
    awk -v start="^$2" '/^```/ { inside = 0 } inside; $0 ~ start { inside = 1 }' "$ROOT/$1" >commands
    PATH=$scratch/bin:$PATH bash -ex -o pipefail commands
}

an_error_is_found() {
    local unit=/etc/systemd/system/credence.service
    sed -i 's/^ProtectSystem=/ProtectsSystem=/' $unit
    grep -q '^ProtectsSystem=' $unit || fail "the unit has no ProtectSystem"
    ! "$scratch/bin/systemctl" daemon-reload || fail "systemd accepts a unit with an unknown setting"
}

# shellcheck disable=SC2016 # the stand-in's own variables
SUDO='#!/bin/sh
[ "$1" = -u ] || exec "$@"
user=$2
shift 2
exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@"'

# shellcheck disable=SC2016 # the stand-in's own variables
SYSTEMCTL='#!/bin/sh
case $* in
    # Of an unknown setting, systemd only warns.
    daemon-reload) ! systemd-analyze verify /etc/systemd/system/credence*.service 2>&1 | grep -F /credence ;;
    "enable --now credence"*)
        unit=/etc/systemd/system/$3.service
        command=$(sed -n "/^ExecStart=/,/[^\\\\]$/ { s/^ExecStart=//; s/\\\\$//; p }" $unit | tr "\n" " ")
        user=$(sed -n "s/^User=//p" $unit)
        folder=$(sed -n "s/^WorkingDirectory=//p" $unit)
        sudo -u "$user" sh -c "cd ${folder:-/}; exec $command" & ;;
    *) echo "the stand-in for systemctl does not know: $*" >&2; exit 1 ;;
esac'

if [ "${1-}" = inside ]; then
    "$@"
else
    main
fi
