#!/usr/bin/env bash
# Makes sure that the benchmarks' tools are installed: the load generator and others, and these PACKAGES:
#   setup-bench.sh [PACKAGE...]
set -euo pipefail
. "$(dirname "$0")/common.sh"

require python3 python3 "running the benchmarks"
require wrk wrk "generating load"
require taskset util-linux "giving Envoy a core of its own"
require openssl openssl "signing the token of the JWT cases"
for package; do
    require "$package" "$package" "this benchmark"
done
