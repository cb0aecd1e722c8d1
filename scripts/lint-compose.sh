#!/usr/bin/env bash
# Has docker-compose read docker-compose.yml, and runs the commands of its head as printed, with a stand-in for Docker
# (interop/docker-compose/docker). CREDENCE_BIN, CREDENCE_ENVOY and CREDENCE_WASM name what it runs.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local compose
    cd "$ROOT"
    say "docker-compose.yml"
    compose=$(scripts/setup-docker-compose.sh) || {
        [ $? = 3 ] || exit 1
        say "SKIPPED the check of docker-compose.yml: $compose"
        return
    }
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    "$compose" --profile '*' config --format json >"$scratch/config.json"
    commands_of_page >"$scratch/commands"
    # The head of docker-compose.yml and the page print the same commands.
    diff <(sed -n '/^name:/q; s/^#   //p' docker-compose.yml) "$scratch/commands" >&2 ||
        fail "docker-compose.yml and $PAGE print different commands"
    run_commands
}

commands_of_page() {
    awk '/^```/ { inside = 0 } inside; /^# With Docker Compose$/ { inside = 1 }' "$PAGE"
}

run_commands() {
    local as_root=() program
    can_isolate_proxies || { say "SKIPPED the commands of docker-compose.yml: $NO_ISOLATION" && return; }
    for program in "${CREDENCE_BIN-}" "${CREDENCE_ENVOY-}" "${CREDENCE_WASM-}"; do
        [ -e "$program" ] || { say "SKIPPED the commands of docker-compose.yml: 'make lint-compose' builds what they run" && return; }
    done
    ((EUID == 0)) || as_root=(--user --map-root-user)
    mkdir "$scratch/bin"
    ln -s "$ROOT/interop/docker-compose/docker" "$scratch/bin/docker"
    # Started again, with a log already there, nothing changes.
    cat - "$scratch/commands" <<<'ip link set lo up' >"$scratch/all"
    echo 'docker compose up --wait' >>"$scratch/all"
    PATH=$scratch/bin:$PATH COMPOSE_CONFIG=$scratch/config.json COMPOSE_STATE=$scratch/state \
        unshare --mount --net --pid --fork --kill-child "${as_root[@]}" bash -e -o pipefail "$scratch/all" >"$scratch/said" 2>&1 ||
        fail "the commands of docker-compose.yml fail" "$(cat "$scratch/said")"
    tr -d '\r' <"$scratch/said" | grep -Eo '^HTTP/1.1 [0-9]+|"reason":"[a-z_]+"' | paste -sd' ' >"$scratch/answers"
    diff <(echo "$ANSWERS") "$scratch/answers" >&2 || fail "the requests of docker-compose.yml are answered otherwise" "$(cat "$scratch/said")"
}

PAGE=docs/start/envoy.md
ANSWERS='HTTP/1.1 200 HTTP/1.1 403 "reason":"argument_not_allowed" HTTP/1.1 401 "reason":"revoked_principal"'

main
