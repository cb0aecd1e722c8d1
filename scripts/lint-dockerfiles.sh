#!/usr/bin/env bash
# Checks the Dockerfiles: with hadolint, and that every base image is pinned by its digest.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local hadolint
    hadolint=$(scripts/setup-hadolint.sh)
    "$hadolint" --failure-threshold style "${DOCKERFILES[@]}"
    awk "$UNPINNED" "${DOCKERFILES[@]}" || fail "an image is not pinned" "Name it by its digest:  FROM IMAGE:TAG@sha256:..."
}

DOCKERFILES=(Dockerfile filter/Dockerfile loadtest/pool/Dockerfile)

# A stage of the same file and the empty image need no digest.
# shellcheck disable=SC2016 # awk's variables
UNPINNED='
    FNR == 1 { delete stages }
    toupper($1) == "FROM" {
        image = $2 ~ /^--/ ? $3 : $2
        if (image != "scratch" && !(image in stages) && image !~ /@sha256:[0-9a-f]+$/) {
            print FILENAME ":" FNR ": no digest: " image
            unpinned = 1
        }
        stages[$NF] = 1
    }
    END { exit unpinned }
'

cd "$ROOT"
main
