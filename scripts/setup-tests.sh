#!/usr/bin/env bash
# Makes sure that what the end-to-end tests stand on is installed, besides Envoy and what cargo brings.
set -euo pipefail
. "$(dirname "$0")/common.sh"

require openssl openssl "making the certificates of the mutual TLS tests"
require strace strace "killing the control plane at a chosen step"
require cc gcc "making the false wall clock of the tests"
require curl curl "running the commands of docs/ as they are printed"
