#!/usr/bin/env bash
# Runs the OAuth issuers and clients of interop/oauth, unmodified, with the real filter and control plane. Its last line
# is a JSON object of counts. Without Java and Maven, it runs without Spring Authorization Server.
#
# The Makefile sets the paths of Envoy, the filter and the credence program.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local prepared node python
    require openssl openssl "making certificates"
    require chromium chromium "people who consent in a real browser"
    prepared=$("$ROOT/scripts/setup-interop.sh" oauth-node oauth-python oauth-spring)
    node=$(folder_of oauth-node) || fail "Node.js 20.12 or newer, with npm, is needed" "https://nodejs.org has it."
    python=$(folder_of oauth-python) || fail "Python 3.11 or newer is needed" "On Debian or Ubuntu:  sudo apt-get install python3"
    CREDENCE_OAUTH_SPRING=$(folder_of oauth-spring) || CREDENCE_OAUTH_SPRING=
    CREDENCE_CHROMIUM=$(command -v chromium)
    export CREDENCE_CHROMIUM CREDENCE_OAUTH_SPRING CREDENCE_OAUTH_PYTHON=$python/bin/python CREDENCE_ROOT=$ROOT

    say "Running the OAuth issuers and clients"
    exec node "$node/test.mjs"
}

# folder_of LANGUAGE: where it was prepared; fails if it was skipped.
folder_of() { sed -n "s/^ready $1 //p" <<<"$prepared" | grep .; }

main "$@"
