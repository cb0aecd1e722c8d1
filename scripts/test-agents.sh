#!/usr/bin/env bash
# Runs curl, the MCP clients and the LangGraph agent of interop/agents, unmodified, as a user who cannot read the keys,
# through `credence proxy` to servers behind the real filter. Its last line is a JSON object of counts.
#
# The Makefile sets the paths of Envoy, the filter and the credence program.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local prepared programs
    [ "$(id -u)" = 0 ] || fail "the agents run as another user, which needs root" "Try:  sudo make test-agents"
    require curl curl "a client of the proxy"
    require socat socat "clients that start a program, whose standard input and output are a socket"
    use_programs_of_everyone
    prepared=$("$ROOT/scripts/setup-interop.sh" agents-node agents-python agents-langgraph)
    programs=$(folder_of agents-node) || fail "Node.js 20.12 or newer, with npm, is needed" "https://nodejs.org has it."
    CREDENCE_AGENTS_PYTHON=$(folder_of agents-python) || without_python
    CREDENCE_AGENTS_LANGGRAPH=$(folder_of agents-langgraph) || without_python
    CREDENCE_STRACE=$(command -v strace) ||
        say "strace is not installed: which files the agents open is left out"
    export CREDENCE_AGENTS_PYTHON CREDENCE_AGENTS_LANGGRAPH CREDENCE_STRACE CREDENCE_ROOT=$ROOT
    # The filter that also reads answers, since the MCP server has sessions.
    export CREDENCE_WASM=${CREDENCE_WASM%.wasm}-mcp.wasm
    as_agent test -r "$programs/complete" ||
        fail "the user $AGENT cannot read $programs" "Clone the repository where every user can read it."

    # Node.js looks for packages in the folders above a program.
    mkdir -p "$programs/interop"/{agents,mcp,oauth}/node
    cp "$ROOT"/interop/agents/node/*.mjs "$programs/interop/agents/node"
    cp "$ROOT"/interop/mcp/node/*.mjs "$programs/interop/mcp/node"
    cp "$ROOT/interop/oauth/node/processes.mjs" "$programs/interop/oauth/node"

    say "Running the agents"
    exec node "$programs/interop/agents/node/test.mjs"
}

# The user of the agents, as in interop/agents/node/agents.mjs.
AGENT=nobody

as_agent() { setpriv --reuid="$AGENT" --regid="$(id -g "$AGENT")" --clear-groups "$@"; }

# use_programs_of_everyone: puts those first that the agents' user can run. Others may be in the home of root.
use_programs_of_everyone() {
    local name program
    for name in python3 node; do
        while read -r program; do
            if as_agent "$program" --version >/dev/null 2>&1; then
                PATH=$(dirname "$program"):$PATH
                continue 2
            fi
        done < <(type -ap "$name")
        fail "the user $AGENT cannot run $name" "Install it for every user."
    done
}

without_python() { fail "Python 3.11 or newer is needed" "On Debian or Ubuntu:  sudo apt-get install python3"; }

# folder_of LANGUAGE: where it was prepared; fails if it was skipped.
folder_of() { sed -n "s/^ready $1 //p" <<<"$prepared" | grep .; }

main "$@"
