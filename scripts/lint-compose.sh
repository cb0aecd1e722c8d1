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
    check "$scratch/config.json" || fail "a service of docker-compose.yml has more rights than it needs"
    refused "$compose" 's/cap_drop: \[ALL\]/cap_drop: [CHOWN]/'
    refused "$compose" 's/read_only: true/read_only: false/'
    refused "$compose" 's/no-new-privileges:true/no-new-privileges:false/'
    refused "$compose" 's/127\.0\.0\.1:8080:8080/8080:8080/'
    commands_of_page >"$scratch/commands"
    # The head of docker-compose.yml and the page print the same commands.
    diff <(sed -n '/^name:/q; s/^#   //p' docker-compose.yml) "$scratch/commands" >&2 ||
        fail "docker-compose.yml and $PAGE print different commands"
    run_commands
}

# check CONFIG: whether every service is restricted, and publishes ports on this machine only.
check() {
    COMPOSE_CONFIG=$1 interop/docker-compose/docker check
}

# refused COMPOSE EXPRESSION: the file, changed by sed's expression, does not pass the check.
refused() {
    sed "$2" docker-compose.yml >"$scratch/wrong.yml"
    ! cmp -s docker-compose.yml "$scratch/wrong.yml" || fail "'$2' changes nothing in docker-compose.yml"
    "$1" --project-directory . --file "$scratch/wrong.yml" --profile '*' config --format json >"$scratch/wrong.json"
    ! check "$scratch/wrong.json" 2>/dev/null || fail "docker-compose.yml with '$2' passes the check"
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
