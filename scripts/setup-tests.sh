#!/usr/bin/env bash
# Makes sure that the end-to-end tests' tools are installed, besides Envoy and cargo's dependencies.
set -euo pipefail
. "$(dirname "$0")/common.sh"

require openssl openssl "making the certificates of the mutual TLS tests"
require strace strace "killing the control plane at a chosen step"
require cc gcc "making the false wall clock of the tests"
require curl curl "running the commands of docs/ as they are printed"
