#!/usr/bin/env bash
# Has Istio's own tool, istioctl, validate and analyze envoy-config/istio. The first time it builds Istio, which takes some
# eight minutes.
#
# The Makefile says where Envoy, the filter and the credence program are: the tests ask for them, whether they use them or not.
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
