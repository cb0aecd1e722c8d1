#!/usr/bin/env bash
# Checks the Dockerfiles: with hadolint, and that every image that they use is pinned by its digest.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local hadolint
    hadolint=$(scripts/setup-hadolint.sh)
    "$hadolint" --failure-threshold style "${DOCKERFILES[@]}"
    awk "$UNPINNED" "${DOCKERFILES[@]}" || fail "an image is not pinned" "Name it by its digest:  FROM IMAGE:TAG@sha256:..."
    unpinned_images_are_found
}

unpinned_images_are_found() {
    local line
    for line in 'FROM debian:12' 'FROM --platform=linux/amd64 debian:12 AS other' 'COPY --from=debian:12 /etc/os-release /' \
        'COPY --chown=1:1 --from=debian:12 /etc/os-release /' 'ADD --from=debian:12 /etc/os-release /' \
        'RUN --mount=type=bind,from=debian:12,target=/mnt true' '    --mount=from=debian:12,target=/mnt true' \
        '# syntax=docker/dockerfile:1'; do
        ! awk "$UNPINNED" <(printf '%s\n' "$line" 'FROM scratch AS build') >/dev/null || fail "not refused: $line"
    done
    awk "$UNPINNED" <(printf '%s\n' 'FROM scratch AS build' 'FROM build' 'COPY --from=build / /' 'COPY --from=0 / /' \
        'RUN --mount=type=bind,from=build,target=/mnt true' '# from=debian:12') || fail "a stage of the same file is refused"
}

DOCKERFILES=(Dockerfile filter/Dockerfile loadtest/pool/Dockerfile)

# A stage of the same file, by name or number, and the empty image need no digest.
# shellcheck disable=SC2016 # awk's variables
UNPINNED='
    function need_digest(image) {
        if (image != "scratch" && !(image in stages) && image !~ /^[0-9]+$/ && image !~ /@sha256:[0-9a-f]+$/) {
            print FILENAME ":" FNR ": no digest: " image
            unpinned = 1
        }
    }
    FNR == 1 { delete stages }
    # The image that reads the file.
    tolower($0) ~ /^# *syntax *=/ { sub(/^[^=]*= */, ""); need_digest($0) }
    /^[ \t]*#/ { next }
    toupper($1) == "FROM" {
        need_digest($2 ~ /^--/ ? $3 : $2)
        stages[$NF] = 1
    }
    {
        for (i = 1; i <= NF; i++)
            if ($i ~ /^--from=/ || $i ~ /^--mount=(.*,)?from=/) {
                image = $i
                sub(/^.*from=/, "", image)
                sub(/,.*$/, "", image)
                need_digest(image)
            }
    }
    END { exit unpinned }
'

cd "$ROOT"
main
