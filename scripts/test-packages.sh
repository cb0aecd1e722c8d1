#!/usr/bin/env bash
# Builds, packs, installs and tests the packages for agents' developers: python/ and typescript/. Its last line is a JSON
# object: how many published vectors each one decides as expected from its installed pack, the cells of the matrix of the
# two packages, the command line tool and the filter, and what failed.
#
# The Makefile sets the paths of Envoy, the filter and the credence program. Names the file of the vectors:
# CREDENCE_AAT_VECTORS.
set -euo pipefail
. "$(dirname "$0")/common.sh"

VECTORS=${CREDENCE_AAT_VECTORS:-$ROOT/../shared/vectors/aat-jws-vectors.json}
WASM=$ROOT/build/credence-agent-wasm.wasm
FAILED=0

main() {
    [ -f "$VECTORS" ] || fail "the published vectors are not there: $VECTORS" "Name their file in CREDENCE_AAT_VECTORS."
    require npm npm "building the TypeScript package"
    python3 -m venv --help >/dev/null || install_packages "building the Python package" python3-venv
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/credence-packages.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    CREDENCE_VECTORS=$(dirname "$VECTORS")
    export CREDENCE_VECTORS
    cp "$WASM" "$ROOT/python/src/credence/agent.wasm"
    cp "$WASM" "$ROOT/typescript/src/agent.wasm"

    say "Python: building, packing and installing"
    python_package
    say "Python: lint, types and tests, with the installed pack"
    try "the Python package's lint" in_folder "$ROOT/python" "$PYTHON" -m ruff check .
    try "the Python package's format" in_folder "$ROOT/python" "$PYTHON" -m ruff format --check .
    try "the Python package's types" in_folder "$ROOT/python" "$PYTHON" -m mypy
    try "the Python package's tests" in_folder "$scratch/python" "$PYTHON" -m pytest -p no:cacheprovider tests

    say "TypeScript: building, packing and installing"
    typescript_package
    say "TypeScript: lint, types and tests"
    try "the TypeScript package's lint" npm --prefix "$ROOT/typescript" run --silent lint
    try "the TypeScript package's tests" in_folder "$ROOT/typescript" npm run --silent test

    say "The published vectors, by both packs"
    local python_vectors typescript_vectors matrix
    python_vectors=$(vectors "$PYTHON" -m credence)
    typescript_vectors=$(vectors in_folder "$scratch/typescript" npx --no-install credence)

    say "The matrix of both packs, the command line tool and the filter"
    matrix=$("$ROOT/target/release/examples/packages-matrix" "$PYTHON $scratch/python/tests/peer.py" \
        "node $scratch/typescript/peer.mjs") || true
    sed '$d' <<<"$matrix" >&2
    python3 - "$python_vectors" "$typescript_vectors" "$FAILED" "$(tail -n1 <<<"$matrix")" "$VECTORS" <<'PYTHON'
import json, sys
python, typescript, failed = map(int, sys.argv[1:4])
try:
    matrix = json.loads(sys.argv[4])
except ValueError:
    matrix = {"matrix_cells": 0, "failed": 1}
with open(sys.argv[5], encoding="utf-8") as file:
    all_vectors = len(json.load(file)["vectors"])
failed += matrix["failed"] + (all_vectors - python) + (all_vectors - typescript)
print(json.dumps({"python_vectors": python, "typescript_vectors": typescript, "matrix_cells": matrix["matrix_cells"], "failed": failed}))
sys.exit(1 if failed else 0)
PYTHON
}

# try WHAT COMMAND...: counts a failure, and goes on.
try() {
    local what=$1
    shift
    if ! "$@" >&2; then
        printf 'FAILED  %s\n' "$what" >&2
        FAILED=$((FAILED + 1))
    fi
}

in_folder() (
    cd "$1"
    shift
    "$@"
)

# Sets PYTHON to an interpreter with the installed wheel, and what its tests need. Copies the tests away from the sources.
python_package() {
    PYTHON=$scratch/venv/bin/python
    python3 -m venv "$scratch/venv"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check -r "$ROOT/python/requirements-test.txt"
    "$PYTHON" -m build --outdir "$scratch/dist" "$ROOT/python" >/dev/null
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps "$scratch"/dist/credence_agent-*.whl
    mkdir "$scratch/python"
    cp -r "$ROOT/python/tests" "$ROOT/python/examples" "$ROOT/python/README.md" "$ROOT/python/pyproject.toml" "$scratch/python/"
}

# Installs the tarball in a folder of its own.
typescript_package() {
    npm --prefix "$ROOT/typescript" ci --silent --no-audit --no-fund
    in_folder "$ROOT/typescript" npm pack --silent --pack-destination "$scratch" >/dev/null
    mkdir "$scratch/typescript"
    echo '{"private":true,"type":"module"}' >"$scratch/typescript/package.json"
    npm --prefix "$scratch/typescript" install --silent --no-audit --no-fund "$scratch"/credence-agent-*.tgz
    cp "$ROOT/typescript/tests/peer.mjs" "$scratch/typescript/"
}

# vectors COMMAND...: how many of the published vectors `COMMAND verify --jsonl` decides as expected.
vectors() {
    python3 - "$VECTORS" "$@" <<'PYTHON'
import json, subprocess, sys
with open(sys.argv[1], encoding="utf-8") as file:
    published = json.load(file)
lines = "".join(
    json.dumps({
        "id": vector["id"], "anchors": published["trust_anchors"], "chain": vector["chain_compact"],
        "proof": vector["pop_compact"], "tool": vector["tool"], "args": vector["args"], "now": vector["now"],
        "audience": [published["params"]["audience"]], "policy": vector["policy"],
    }) + "\n"
    for vector in published["vectors"]
)
command, folder = sys.argv[2:], None
if command[0] == "in_folder":
    folder, command = command[1], command[2:]
ran = subprocess.run([*command, "verify", "--jsonl"], input=lines, stdout=subprocess.PIPE, text=True, cwd=folder)
answers = [json.loads(line) for line in ran.stdout.splitlines()]
right = 0
for vector, answer in zip(published["vectors"], answers, strict=True):
    expected = vector["expected"]
    decision = {"PERMIT": "allow"}.get(expected["verdict"], "deny")
    steps = (expected.get("step") or "").split("/")
    is_right = answer["id"] == vector["id"] and answer["decision"] == decision and (answer["step"] or "") in steps
    right += is_right
    if not is_right:
        print("FAILED ", vector["id"], expected, answer, file=sys.stderr)
print(right)
PYTHON
}

main "$@"
