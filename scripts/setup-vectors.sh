#!/usr/bin/env bash
# Makes sure that the published test vectors of the conformance tests are in .tools: Wycheproof's, and those of RFC
# 8785's author. Both are released as Go modules, so Go fetches them; without Go, the tests say what they skip.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    provide "Wycheproof's test vectors (about 26 MB)" vectors-wycheproof \
        github.com/c2sp/wycheproof "$WYCHEPROOF_VERSION" "$WYCHEPROOF_SUM" \
        testvectors_v1/{ed25519,ecdsa_secp256{r1,k1}_sha256_p1363,json_web_{signature,key,crypto}}_test.json
    provide "RFC 8785's test vectors" vectors-jcs \
        github.com/cyberphone/json-canonicalization "$JCS_VECTORS_VERSION" "$JCS_VECTORS_SUM" \
        testdata/README.md testdata/{input,output}/{arrays,french,structures,unicode,values,weird}.json \
        testdata/outhex/{arrays,french,structures,unicode,values,weird}.txt
}

# provide WHAT NAME MODULE VERSION SUM FILE...: copies these files of the module to NAME-VERSION in .tools, unless they
# are there, and removes other versions.
provide() {
    local what=$1 name=$2 module=$3@$4 sum=$5 home=$TOOLS/$2-$4 old
    shift 5
    for old in "$TOOLS/$name"-*; do
        [ "$old" = "$home" ] || rm -rf "$old"
    done
    all_there "$home" "$@" && return
    if ! have go; then
        say "$what are not there and Go, which downloads them, is not installed: the tests that need them are skipped"
        return
    fi

    say "Downloading $what"
    mkdir -p "$TOOLS"
    scratch=$(mktemp -d "$TOOLS/vectors.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    local found source file
    # Uses neither another Go nor the checksum database: this script compares the sum with the pinned one.
    found=$(cd "$scratch" && GOTOOLCHAIN=local GOWORK=off GOFLAGS=-mod=mod GOSUMDB=off go mod download -json "$module") ||
        fail "could not download $module: $(member Error "$found")" "Check the network and the setting of GOPROXY."
    [ "$(member Sum "$found")" = "$sum" ] ||
        fail "the downloaded $module is not the pinned one (its sum differs from scripts/versions.sh)"
    source=$(member Dir "$found")

    mkdir "$scratch/files"
    for file; do
        mkdir -p "$(dirname "$scratch/files/$file")"
        cp "$source/$file" "$scratch/files/$file"
    done
    chmod -R u+w "$scratch/files"
    # Last and in one step: this path never has an incomplete folder, even if two runs do this at the same time.
    all_there "$home" "$@" || rm -rf "$home"
    mv -T "$scratch/files" "$home" 2>/dev/null || all_there "$home" "$@" ||
        fail "could not move $scratch/files to $home" "Remove $home and run this again."
    rm -rf "$scratch"
}

# all_there HOME FILE...: whether HOME has all of them.
all_there() {
    local home=$1 file
    shift
    for file; do [ -f "$home/$file" ] || return 1; done
}

main
