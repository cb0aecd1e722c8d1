#!/usr/bin/env bash
# Counts the product's code, and the import cycles of all Rust code. The last line is one JSON object.
#
#   scripts/count-code.sh            lines by crate, and every import of a cycle
#   scripts/count-code.sh --check    fail if files import each other in a cycle
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 scripts/count_code.py "$@"
