#!/usr/bin/env bash
# Runs cargo for another target than this machine:  cross-cargo.sh TARGET (build|clippy|check|run|test) [ARGUMENT...]
#
# The toolchain in use provides the target's standard library if it can (rustup target add TARGET). Otherwise Debian's
# compiler builds it from Debian's sources. That compiler's version differs from the toolchain's, so it has its own
# target folder. Prints the folder of the artefacts on stdout.
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    target=${1:-} features=()
    case $target in
        wasm32-unknown-unknown)
            # Without `backtrace`: the module has no function names to show.
            name=wasm linker=wasm-ld-$LLD_VERSION crates=std,panic_abort parts='' packages=("lld-$LLD_VERSION")
            # Saves half a microsecond per request, since SHA-256 uses it. V8 has had it since 2021.
            features=("-Ctarget-feature=+simd128")
            ;;
        aarch64-unknown-linux-gnu)
            name=arm64 linker=aarch64-linux-gnu-gcc crates=std,panic_unwind,test parts=panic-unwind,backtrace
            packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
            ;;
        x86_64-unknown-linux-gnu)
            name=amd64 linker=x86_64-linux-gnu-gcc crates=std,panic_unwind,test parts=panic-unwind,backtrace
            packages=(gcc-x86-64-linux-gnu libc6-dev-amd64-cross)
            ;;
        *) fail "unknown target '$target'" "Known are wasm32-unknown-unknown, aarch64-unknown-linux-gnu, x86_64-unknown-linux-gnu" ;;
    esac
    shift
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
        with_toolchain "$@"
    else
        with_distribution "$@"
    fi
}

with_toolchain() {
    local folder=$ROOT/target/$name flags=("${features[@]}")
    # The toolchain contains the linker for Wasm; `cc` links for this machine.
    if [ "$name" != wasm ] && [ "$target" != "$(rustc --print host-tuple)" ]; then
        have "$linker" || install_packages "building for $target" "${packages[@]}"
        flags+=("-Clinker=$linker")
    fi
    CARGO_ENCODED_RUSTFLAGS=$(compiler_flags "$(rustc --print sysroot)" "${flags[@]}") run_cargo cargo "$1" "$folder" "${@:2}"
}

with_distribution() {
    local folder=$ROOT/target/$name-distribution command=$1
    shift
    install_distribution_compiler "$command"
    check_rust_version /usr/bin/rustc
    # RUSTC_BOOTSTRAP: -Z build-std is not a stable flag. PATH: cargo finds clippy-driver and friends there.
    PATH=/usr/bin:$PATH RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
        CARGO_ENCODED_RUSTFLAGS=$(compiler_flags "$(/usr/bin/rustc --print sysroot)" "-Clinker=$linker" "${features[@]}") \
        run_cargo /usr/bin/cargo "$command" "$folder" -Z "build-std=$crates" -Z "build-std-features=$parts" "$@"
}

# run_cargo CARGO COMMAND FOLDER ARGUMENT...
run_cargo() {
    local cargo=$1 command=$2 folder=$3
    shift 3
    if [ "$command" = clippy ] && [ "$cargo" = /usr/bin/cargo ]; then
        # `cargo clippy` would prefer rustup's cargo-clippy to the one beside this cargo.
        CARGO=$cargo /usr/bin/cargo-clippy clippy --target "$target" --target-dir "$folder" "$@" >&2
    else
        "$cargo" "$command" --target "$target" --target-dir "$folder" "$@" >&2
    fi
    echo "$folder/$target"
}

install_distribution_compiler() {
    local missing=()
    [ -x /usr/bin/rustc ] || missing+=(rustc-web)
    [ -x /usr/bin/cargo ] || missing+=(cargo-web)
    [ -d /usr/lib/rustlib/src/rust/library/std ] || missing+=(rust-web-src)
    [ -x "/usr/bin/$linker" ] || missing+=("${packages[@]}")
    if [ "$1" = clippy ] && [ ! -x /usr/bin/cargo-clippy ]; then missing+=(rust-web-clippy); fi
    ((${#missing[@]})) || return 0

    if have rustup && ! can_install_packages; then
        fail "this Rust toolchain cannot build for $target yet" \
            "With rustup:           rustup target add $target" \
            "or on Debian, Ubuntu:  sudo apt-get install ${missing[*]}"
    fi
    install_packages "building for $target" "${missing[@]}"
}

# compiler_flags SYSROOT FLAG...: the given flags, and those that make the output independent of the folders of the
# sources, the registry's crates and the standard library (scripts/check-reproducible.sh checks this for the module). If
# two prefixes match, the compiler takes the last. Joined by the unit separator, as cargo expects, so that a path may
# contain spaces.
compiler_flags() {
    local sysroot=$1 IFS=$'\x1f'
    shift
    local flags=(
        "$@"
        "--remap-path-prefix=$sysroot/lib/rustlib/src/rust=/rust"
        "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
        "--remap-path-prefix=$ROOT=/credence"
    )
    echo "${flags[*]}"
}

main "$@"
