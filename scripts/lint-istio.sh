#!/usr/bin/env bash
# Has Istio's own tool, istioctl, validate and analyze envoy-config/istio. The first run builds Istio, which takes about
# eight minutes.
#
# The Makefile sets the paths of Envoy, the filter and the credence program: the tests need them, used or not.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local prepared
    prepared=$("$ROOT/scripts/setup-interop.sh" istio)
    case $prepared in
        skipped*) return ;;
    esac
    CREDENCE_ISTIO=${prepared#ready istio } cargo test --locked -p credence-e2e --test mesh -- --ignored checks::
}

main
