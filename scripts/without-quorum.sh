#!/bin/sh
# rustc for test-cluster.sh: replicas whose echoes are not behind a quorum read. Never ship what it builds.
exec "$@" --cfg credence_echoes_without_quorum
