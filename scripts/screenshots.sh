#!/usr/bin/env bash
# Takes the pictures of the issuer's pages: docs/pictures/issuer-*.png, with the real programs and a real browser.
#
# The Makefile sets the paths of Envoy, the filter and the credence program.
set -euo pipefail
. "$(dirname "$0")/common.sh"

PICTURES=$ROOT/docs/pictures

main() {
    local node
    require openssl openssl "making certificates"
    require chromium chromium "showing the pages"
    require pngquant pngquant "making the pictures small"
    node=$("$ROOT/scripts/setup-interop.sh" oauth-node | sed -n 's/^ready oauth-node //p')
    [ -n "$node" ] || fail "Node.js 20.12 or newer, with npm, is needed" "https://nodejs.org has it."
    CREDENCE_CHROMIUM=$(command -v chromium)
    export CREDENCE_CHROMIUM CREDENCE_ROOT=$ROOT

    say "Taking the pictures of the issuer's pages"
    node "$node/screenshots.mjs" "$PICTURES"
    pngquant --force --ext .png --strip 64 "$PICTURES"/issuer-*.png
}

main "$@"
