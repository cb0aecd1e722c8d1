#!/usr/bin/env bash
# Prepares the third-party software of the tests, pinned by the lock files in interop/: the JOSE libraries of a language
# (python, node, go; all three by default), an EventSource (sse), a conformance tester for SCIM (scim), a fuzzer of HTTP APIs
# (openapi), Go's tools for transparency logs (tlog), readers of exported evidence (evidence), the checks of Kubernetes and
# Helm for manifests (kubernetes), kubectl and helm with a stand-in for a cluster (cluster), a client for image registries
# (oci), the code with which Istio's agent fetches modules (fetch), Istio itself (istio), and the services of interop/oracles
# (oracles-node, oracles-python, oracles-go, oracles-spring, oracles-php), and the issuers and clients of interop/oauth
# (oauth-node, oauth-python, oauth-spring), and the agents of interop/agents (agents-node, agents-python, agents-langgraph).
# For each it prints either
#   ready LANGUAGE FOLDER       the folder in .tools has what interop/README.md says
#   skipped LANGUAGE            its toolchain is not installed, or too old: stderr says which
set -euo pipefail
. "$(dirname "$0")/common.sh"

main() {
    local language
    for language in "$@"; do
        prepare "$language"
    done
}

# prepare LANGUAGE: unless it was prepared from exactly these files with this toolchain.
prepare() {
    local language=$1 toolchain home old status=0
    toolchain=$("toolchain_of_$language") || status=$?
    if [ "$status" = "$NOT_INSTALLED" ]; then
        say "Skipped: the interoperability tests in $language: $toolchain"
        echo "skipped $language"
        return
    fi
    [ "$status" = 0 ] || exit "$status"
    home=$TOOLS/interop-$language-$(digest "$language" "$toolchain")
    if [ ! -e "$home/complete" ]; then
        say "Preparing the interoperability tests in $language ($toolchain)"
        mkdir -p "$TOOLS"
        scratch=$(mktemp -d "$TOOLS/preparing-$language.XXXXXX")
        trap 'rm -rf "$scratch"' EXIT
        "prepare_$language" "$scratch" "$(sources "$language")" >&2
        touch "$scratch/complete"
        chmod 755 "$scratch"
        # Last, and by an atomic rename: this path never holds a part of the files. If another process prepares the same
        # at the same time, the first rename wins.
        [ -e "$home/complete" ] || rm -rf "$home"
        mv -T "$scratch" "$home" 2>/dev/null || [ -e "$home/complete" ] ||
            fail "could not move $scratch to $home" "Remove $home if it is there, and run this again."
        rm -rf "$scratch"
        for old in "$TOOLS/interop-$language"-*; do
            [ "$old" = "$home" ] || rm -rf "$old"
        done
    fi
    echo "ready $language $home"
}

# sources LANGUAGE: the folder with its files; that of oracles-node is interop/oracles/node, of oauth-node interop/oauth/node.
sources() {
    case $1 in
        oauth-node | oauth-python | oauth-spring) echo "$ROOT/interop/oauth/${1#oauth-}" ;;
        agents-node | agents-python | agents-langgraph) echo "$ROOT/interop/agents/${1#agents-}" ;;
        *) echo "$ROOT/interop/${1/oracles-/oracles/}" ;;
    esac
}

# digest LANGUAGE TOOLCHAIN: of all inputs. Python programs are not inputs, since they run from the repository.
digest() (
    cd "$(sources "$1")"
    {
        find . -type f -not -path '*/node_modules/*' -not -name '*.py' -not -name '*.pyc' -print0 |
            LC_ALL=C sort -z | xargs -0 sha256sum
        echo "$2"
    } | sha256sum | cut -c1-12
)

# toolchain_of_LANGUAGE: prints its name and version; or why it cannot be used, and returns NOT_INSTALLED.
NOT_INSTALLED=3

toolchain_of_python() {
    toolchain 3.11 Python python3 python3 -c 'import platform; print(platform.python_version())'
}

# The tester is a Python program.
toolchain_of_scim() {
    toolchain_of_python
}

toolchain_of_node() {
    have npm || { echo "npm is not installed" && return "$NOT_INSTALLED"; }
    toolchain "${1:-20}" Node.js node node -p process.versions.node
}

toolchain_of_go() {
    toolchain 1.24 Go go go env GOVERSION
}

toolchain_of_tlog() { toolchain_of_go; }

toolchain_of_kubernetes() {
    toolchain 1.26 Go go go env GOVERSION
}

toolchain_of_cluster() { toolchain_of_kubernetes; }

toolchain_of_oci() {
    toolchain 1.25 Go go go env GOVERSION
}

# Built with the same module file as Istio's programs.
toolchain_of_fetch() {
    toolchain "$(sed -n 's/^go //p' "$ISTIO")" Go go go env GOVERSION && sed -n 's/^.*\(istio.io.istio v[^ ]*\).*/\1/p' "$ISTIO"
}
ISTIO=$ROOT/interop/istio/go.mod

toolchain_of_istio() { toolchain "$(sed -n 's/^go //p' "$ISTIO")" Go go go env GOVERSION; }

toolchain_of_sse() { toolchain_of_node; }

toolchain_of_openapi() { toolchain_of_python; }

toolchain_of_evidence() { toolchain_of_python; }

toolchain_of_oracles-node() { toolchain_of_node; }

toolchain_of_oracles-python() { toolchain_of_python; }

toolchain_of_oracles-go() { toolchain 1.25 Go go go env GOVERSION; }

toolchain_of_oracles-spring() {
    have mvn || { echo "Maven is not installed" && return "$NOT_INSTALLED"; }
    have javac || { echo "a JDK is not installed" && return "$NOT_INSTALLED"; }
    toolchain 17 Java java javac_version
}

# oidc-provider uses crypto.hash.
toolchain_of_oauth-node() { toolchain_of_node 20.12; }

toolchain_of_oauth-python() { toolchain_of_python; }

toolchain_of_oauth-spring() { toolchain_of_oracles-spring; }

# The same versions as in interop/oauth: import.meta.dirname is that new.
toolchain_of_agents-node() { toolchain_of_node 20.12; }

toolchain_of_agents-python() { toolchain_of_python; }

toolchain_of_agents-langgraph() { toolchain_of_python; }

javac_version() { javac -version 2>&1 | sed 's/^javac //'; }

# From the distribution, which has only one version of each.
toolchain_of_oracles-php() {
    if ! have php || ! have php-cgi || ! have lighttpd; then
        can_install_packages || { echo "php-cli, php-cgi and lighttpd are not installed" && return "$NOT_INSTALLED"; }
        install_packages "PHP and CGI services behind the filter" php-cli php-cgi lighttpd
    fi
    echo "PHP $(php -r 'echo PHP_VERSION;'), $(lighttpd -v | cut -d' ' -f1)"
}

# toolchain OLDEST NAME COMMAND VERSION_COMMAND...
toolchain() {
    local oldest=$1 name=$2 command=$3 version
    shift 3
    have "$command" || { echo "$command is not installed" && return "$NOT_INSTALLED"; }
    version=$("$@") || fail "'$*' failed: is $name installed correctly?"
    version=${version#go}
    if [ "$(printf '%s\n' "$oldest" "$version" | sort -V | head -n1)" != "$oldest" ]; then
        echo "$name $oldest or newer is not installed (found $version)"
        return "$NOT_INSTALLED"
    fi
    echo "$name $version"
}

# prepare_LANGUAGE FOLDER SOURCES

prepare_python() {
    python3 -m pip --version >/dev/null 2>&1 || install_packages "testing against what $2/requirements.txt pins" python3-pip
    # Without its own pip, which is not needed there: Debian's Python needs another package to install it.
    {
        python3 -m venv --without-pip "$1" &&
            python3 -m pip --python "$1/bin/python" --disable-pip-version-check install --quiet --no-deps \
                --only-binary=:all: --requirement "$2/requirements.txt"
    } || cannot_prepare "what $2/requirements.txt pins"
}

prepare_node() {
    cp -R "$2/." "$1"
    # Without --prefix, which fails if .tools is a link.
    (cd "$1" && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error >/dev/null) ||
        cannot_prepare "what $2/package.json pins"
}

prepare_sse() { prepare_node "$@"; }

prepare_openapi() { prepare_python "$@"; }

prepare_evidence() { prepare_python "$@"; }

prepare_scim() { prepare_python "$@"; }

prepare_go() {
    go -C "$2" build -trimpath -mod=readonly -o "$1/interop" . || cannot_prepare golang-jwt and go-jose
}

prepare_tlog() {
    go -C "$2" build -trimpath -mod=readonly -o "$1/tlog" . || cannot_prepare golang.org/x/mod/sumdb
}

prepare_kubernetes() {
    local module version sum folder found
    CGO_ENABLED=0 go -C "$2" build -mod=readonly -ldflags='-s -w' -o "$1/kubernetes" . ||
        cannot_prepare "Kubernetes' and Helm's own checks"
    mkdir "$1/definitions"
    while read -r module version sum folder; do
        # Not a requirement of the program, since all of its dependencies would become the program's: the sum is
        # compared here.
        found=$(cd "$1" && GOWORK=off GOFLAGS=-mod=mod GOSUMDB=off go mod download -json "$module@$version") ||
            cannot_prepare "$module"
        [ "$(member Sum "$found")" = "$sum" ] ||
            fail "the downloaded $module is not the pinned one (its sum differs from $2/definitions.txt)"
        cp "$(member Dir "$found")/$folder"/*.yaml "$1/definitions"
    done <"$2/definitions.txt"
    chmod -R u+w "$1/definitions"
}

prepare_cluster() {
    local program
    say "Building kubectl and helm: once, a few minutes"
    for program in credence.example/cluster helm.sh/helm/v3/cmd/helm k8s.io/kubernetes/cmd/kubectl; do
        CGO_ENABLED=0 go -C "$2" build -mod=readonly -ldflags='-s -w' -o "$1/${program##*/}" "$program" ||
            cannot_prepare "${program##*/}"
    done
}

prepare_oci() {
    go -C "$2" build -trimpath -mod=readonly -o "$1/crane" github.com/google/go-containerregistry/cmd/crane ||
        cannot_prepare crane
}

prepare_fetch() {
    say "Building the part of Istio that fetches modules: once, a few minutes"
    CGO_ENABLED=0 go -C "$2" build -trimpath -modfile="$ISTIO" -mod=readonly -buildvcs=false -ldflags '-s -w' -o "$1/fetch" . ||
        cannot_prepare "Istio's pkg/wasm"
}

# The same module has the bootstrap template of Istio's Envoy, as in its image.
prepare_istio() {
    local program source
    say "Building istiod, its agent and istioctl: once, about eight minutes and 2.5 GB of memory"
    for program in pilot/cmd/pilot-discovery pilot/cmd/pilot-agent istioctl/cmd/istioctl; do
        CGO_ENABLED=0 go -C "$2" build -trimpath -mod=readonly -buildvcs=false -ldflags '-s -w' \
            -o "$1/${program##*/}" "istio.io/istio/$program" || cannot_prepare "Istio's $program"
    done
    source=$(go -C "$2" list -mod=readonly -m -f '{{.Dir}}' istio.io/istio)
    install -m 644 "$source/tools/packaging/common/envoy_bootstrap.json" "$1/envoy_bootstrap.json"
}

prepare_oracles-node() { prepare_node "$@"; }

prepare_oracles-python() { prepare_python "$@"; }

prepare_oracles-go() {
    CGO_ENABLED=0 go -C "$2" build -trimpath -mod=readonly -o "$1/oracles" . || cannot_prepare "chi and net/http"
}

prepare_oracles-spring() {
    local version
    for version in spring5 spring6; do
        mvn --quiet --batch-mode --file "$2/pom.xml" "-P$version" "-Dtarget=$1/$version" \
            compile dependency:copy-dependencies || cannot_prepare "Spring MVC and Tomcat ($version)"
    done
    check_jars "$1" "$2"
}

# check_jars FOLDER SOURCES: Maven pins versions, not content.
check_jars() {
    (cd "$1" && sha256sum --check --quiet "$2/jars.sha256") ||
        fail "a downloaded jar is not the pinned one (its digest differs from $2/jars.sha256)"
}

# The programs are the distribution's, and the files run from the repository.
prepare_oracles-php() { :; }

prepare_oauth-node() { prepare_node "$@"; }

prepare_oauth-python() { prepare_python "$@"; }

prepare_oauth-spring() {
    mvn --quiet --batch-mode --file "$2/pom.xml" "-Dtarget=$1" compile dependency:copy-dependencies ||
        cannot_prepare "Spring Authorization Server"
    check_jars "$1" "$2"
}

prepare_agents-node() { prepare_node "$@"; }

prepare_agents-python() { prepare_python "$@"; }

prepare_agents-langgraph() { prepare_python "$@"; }

cannot_prepare() {
    fail "could not prepare $*, which the tests need" "Check the network and the message above."
}

# The installed Go builds the pinned modules; another one is never downloaded.
export GOTOOLCHAIN=local

if (($#)); then main "$@"; else main python node go; fi
