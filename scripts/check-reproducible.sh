#!/usr/bin/env bash
# Checks that the same sources in another folder give the same filter module and the same OCI image layouts: builds all
# here and from a copy in another folder, whose name is longer and contains a space, and compares. The copy is built
# from scratch, which takes minutes.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local copies copy
    copies=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder as it is now
    trap "rm -rf '$copies'" EXIT
    copy="$copies/a copy of the sources"
    mkdir "$copy"
    tar -C "$ROOT" "${LEFT_OUT[@]/#/--exclude=./}" -cf - . | tar -C "$copy" -xf -

    local kind module
    for kind in filter filter-mcp; do
        module=build/credence-$kind.wasm
        "$ROOT/scripts/build-wasm.sh" "$kind"
        "$copy/scripts/build-wasm.sh" "$kind"
        if ! cmp "$ROOT/$module" "$copy/$module" >&2; then
            fail "the module depends on where it is built" \
                "Look for paths in it:  strings $module | grep /" \
                "and remap them in scripts/cross-cargo.sh (compiler_flags)"
        fi
        say "The same $module from both folders: SHA-256 $(sha256sum "$ROOT/$module" | cut -d' ' -f1)"
    done

    "$ROOT/scripts/pack-module.sh" >/dev/null
    "$copy/scripts/pack-module.sh" >/dev/null
    { diff -r "$ROOT/build/oci" "$copy/build/oci" && diff -r "$ROOT/build/oci-mcp" "$copy/build/oci-mcp"; } >&2 ||
        fail "the layouts depend on where they are packed" "Look at scripts/module-layouts.py"
    say "The same layouts from both folders"
}

# What is built or installed, not written.
LEFT_OUT=(.git .tools try build target fuzz/target loadtest/noop/target loadtest/calls/target e2e/neighbour/target)

main
