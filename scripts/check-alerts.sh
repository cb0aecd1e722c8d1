#!/usr/bin/env bash
# Checks Prometheus' configuration, the rules and their texts, with promtool. e2e/tests/documentation/observability
# checks that the metrics of the rules and the dashboard exist.
set -euo pipefail
. "$(dirname "$0")/common.sh"

cd "$ROOT"
say "Alerts and their tests"
if prometheus=$(scripts/setup-prometheus.sh); then
    quietly() { "$@" >"$log" 2>&1 || { cat "$log" >&2 && fail "'${*##*/}' failed"; }; }
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    quietly "$prometheus/promtool" check config envoy-config/observability/prometheus.yml
    quietly "$prometheus/promtool" check rules envoy-config/observability/rules/*.yml
    quietly "$prometheus/promtool" test rules envoy-config/observability/tests/*.yml
else
    [ $? = 3 ] || exit 1
    say "SKIPPED the checks of Prometheus's rules: $prometheus"
fi
