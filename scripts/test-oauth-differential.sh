#!/usr/bin/env bash
# Compares Credence with the verifier in interop/oauth-oracle:  scripts/test-oauth-differential.sh [CASES [SEED]]
# CREDENCE_BIN is the program. Without SEED, one is chosen at random. The last line is a JSON object with the counts.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local cases=${1:-100000} seed=${2:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')} prepared
    # The JOSE libraries of interop/python pin the same `cryptography`.
    prepared=$("$ROOT/scripts/setup-interop.sh" python)
    case $prepared in
    ready*) ;;
    *) fail "Python cannot be used" "See the message above." ;;
    esac
    say "Comparing $cases access tokens and DPoP proofs with seed $seed"
    "${prepared##* }/bin/python" "$ROOT/interop/oauth-oracle/compare.py" \
        "${CREDENCE_BIN:-$ROOT/target/release/credence}" "$cases" "$seed"
}

main "$@"
