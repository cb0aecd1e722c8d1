#!/usr/bin/env bash
# Puts together in build/release/VERSION what a release page carries:  release.sh [PART]
#
#   x86_64, aarch64   the program `credence` for glibc Linux, with the systemd unit; BUILDINFO
#   module            the filter, and both OCI image layouts of it; BUILDINFO
#   chart             the Helm chart
#   schemas           JSON Schemas of the filter's and the control plane's configuration
#   sboms             CycloneDX lists of the crates in the program and in the module
#   notes             this version's part of CHANGELOG.md
#
# Without a part: all of them. A part that fails does not stop the others; the end names it. All parts are of one commit, which
# COMMIT names, from a clean work tree. SHA256SUMS lists complete parts only.
#
# The same commit gives the same files if the compilers are the same too: BUILDINFO names them. Timestamps are the commit's.
set -euo pipefail
. "$(dirname "$0")/common.sh"

PARTS=(x86_64 aarch64 module chart schemas sboms notes)

main() {
    cd "$ROOT"
    VERSION=$(sed -n '/^\[workspace.package\]/,/^$/ s/^version = "\(.*\)"/\1/p' Cargo.toml)
    OUT=$ROOT/build/release/$VERSION
    # The sums of each complete part.
    SUMS=$ROOT/build/release/.$VERSION.sums
    COMMIT=$(git rev-parse HEAD)
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH LC_ALL=C
    [ -z "$(git status --porcelain)" ] ||
        fail "the work tree has changes, so a release would not be that of a commit" "Commit or remove them:  git status"
    mkdir -p "$ROOT/build/release"
    # On the same file system as the release: a move is atomic.
    scratch=$(mktemp -d "$ROOT/build/release/.making.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    PART=$scratch/part
    mkdir "$PART"
    case ${1-} in
        "") make_all ;;
        *) make_part "$1" ;;
    esac
}

make_all() {
    local part failed=()
    rm -rf "$OUT" "$SUMS"
    for part in "${PARTS[@]}"; do
        # A process of its own: in a condition, `set -e` would not end a function.
        "$0" "$part" || failed+=("$part")
    done
    ! ((${#failed[@]})) || fail "the release $VERSION is not complete; failed: ${failed[*]}" \
        "Try one again:  scripts/release.sh ${failed[0]}"
    say "The release $VERSION is complete: $OUT"
    cat "$OUT/SHA256SUMS"
}

make_part() {
    [[ " ${PARTS[*]} " == *" $1 "* ]] ||
        fail "a release has no part '$1'" "The parts are: ${PARTS[*]}"
    say "Release $VERSION: $1"
    mkdir -p "$OUT" "$SUMS"
    [ -e "$OUT/COMMIT" ] || echo "$COMMIT" >"$OUT/COMMIT"
    [ "$(cat "$OUT/COMMIT")" = "$COMMIT" ] ||
        fail "$OUT is of the commit $(cat "$OUT/COMMIT"), not of $COMMIT" "Make all parts of one commit:  scripts/release.sh"
    "make_$1"
    (cd "$PART" && sha256sum -- *) >"$scratch/sums"
    rm -f "$OUT/SHA256SUMS" "$SUMS/$1"
    mv "$PART"/* "$OUT/"
    # Last: with its sums, a part is complete.
    mv "$scratch/sums" "$SUMS/$1"
    { (cd "$OUT" && sha256sum COMMIT) && cat "$SUMS"/*; } | sort -k2 >"$scratch/all"
    mv "$scratch/all" "$OUT/SHA256SUMS"
}

make_x86_64() { make_program x86_64; }
make_aarch64() { make_program aarch64; }

make_program() {
    local name=credence-$VERSION-$1-linux-gnu built
    built=$(scripts/cross-cargo.sh "$1-unknown-linux-gnu" build --locked --profile dist -p credence)
    mkdir "$scratch/$name"
    cp "$built/dist/credence" LICENSE envoy-config/systemd/credence.service "$scratch/$name/"
    archive "$scratch" "$name" "$PART/$name.tar.gz"
    build_info "$1-unknown-linux-gnu" >"$PART/BUILDINFO-$1"
    say "$name needs $(grep -aoE 'GLIBC_2\.[0-9]+' "$scratch/$name/credence" | sort -uV | tail -n1) or later"
}

make_module() {
    local layout kind
    scripts/build-wasm.sh filter
    scripts/build-wasm.sh filter-mcp
    scripts/pack-module.sh >/dev/null
    for kind in '' -mcp; do
        cp "build/credence-filter$kind.wasm" "$PART/credence-filter$kind-$VERSION.wasm"
        for layout in compat artifact; do
            cp "build/oci$kind/$layout.tar" "$PART/credence-filter$kind-$VERSION-oci-$layout.tar"
        done
    done
    build_info wasm32-unknown-unknown >"$PART/BUILDINFO-module"
}

# build_info TARGET: the commit, and what can have compiled and linked it (scripts/cross-cargo.sh).
build_info() {
    local rustc=rustc program
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || rustc=/usr/bin/rustc
    echo "commit: $COMMIT"
    echo "target: $1"
    "$rustc" -Vv
    for program in cc x86_64-linux-gnu-gcc aarch64-linux-gnu-gcc "wasm-ld-$LLD_VERSION"; do
        if have "$program"; then echo "$program: $("$program" --version | head -n1)"; fi
    done
}

make_chart() {
    local chart=credence-control-plane left_out
    grep -qx "version: $VERSION" "envoy-config/helm/$chart/Chart.yaml" || fail "the chart does not have the version $VERSION"
    # What `helm package` makes, without the times of the files.
    mapfile -t left_out < <(sed -n 's#^\([^\#].*[^/]\)/*$#--exclude=\1#p' "envoy-config/helm/$chart/.helmignore")
    archive envoy-config/helm "$chart" "$PART/$chart-$VERSION.tgz" "${left_out[@]}"
}

make_schemas() {
    cp docs/*.schema.json "$PART/"
}

make_sboms() {
    local program
    program=$(scripts/setup-cargo-cyclonedx.sh)
    # It writes beside each Cargo.toml, so into a copy.
    mkdir "$scratch/sources"
    git archive HEAD | tar -C "$scratch/sources" -xf -
    make_sbom "$program" cli credence x86_64-unknown-linux-gnu
    make_sbom "$program" filter credence-filter wasm32-unknown-unknown
}

# make_sbom PROGRAM FOLDER CRATE TARGET
make_sbom() {
    local file=$PART/$3-$VERSION.cdx.json
    "$1" cyclonedx --quiet --manifest-path "$scratch/sources/$2/Cargo.toml" --format json --spec-version 1.5 --target "$4"
    # Crates of the workspace are identified by their path.
    sed "s#$scratch/sources#/credence#g" "$scratch/sources/$2/$3.cdx.json" >"$file"
    python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["components"]' "$file" || fail "$file names no crate"
}

make_notes() {
    awk -v heading="## $VERSION" '/^## / { inside = $0 == heading; next } inside && (begun || NF) { begun = 1; print }' \
        CHANGELOG.md >"$PART/NOTES.md"
    [ -s "$PART/NOTES.md" ] || fail "CHANGELOG.md has no section '## $VERSION'"
}

# archive FOLDER NAME FILE [OPTION...]: the folder NAME in FOLDER as a .tar.gz, without times, owners and umask of this
# machine.
archive() {
    tar -C "$1" --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=u=rwX,go=rX "${@:4}" -cf - "$2" | gzip -9n >"$3"
}

main "$@"
