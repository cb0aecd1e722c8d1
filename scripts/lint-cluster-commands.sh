#!/usr/bin/env bash
# Runs the commands for a cluster in docs/ with the real kubectl and helm, page after page as printed, against a
# stand-in for a cluster (interop/cluster). The first run builds both, which takes minutes. CREDENCE_BIN names
# `credence`.
#
# It skips commands for the cluster's registry (e2e/tests/filter/module_image.rs pushes) and those that need a running
# pod.
set -euo pipefail
. "$(dirname "$0")/common.sh"

# In the order of an operator who installs everything.
PAGES=(operate/control-plane start/istio start/envoy-gateway)
# Namespaces that exist before Credence.
NAMESPACES=(default payments istio-system envoy-gateway-system)

main() {
    local prepared page
    prepared=$("$ROOT/scripts/setup-interop.sh" cluster)
    case $prepared in
    skipped*) return ;;
    esac
    HOME_OF_TOOLS=${prepared##* }
    scratch=$(mktemp -d)
    trap 'end_cluster; rm -rf "$scratch"' EXIT
    mkdir -p "$scratch/bin" "$scratch/home"
    ln -s "$HOME_OF_TOOLS"/{kubectl,helm} "$scratch/bin/"
    ln -s "$CREDENCE_BIN" "$scratch/bin/credence"
    link_istioctl
    ln -s "$ROOT/envoy-config" "$scratch/envoy-config"
    cp "$ROOT/envoy-config/helm/credence-control-plane/ci/default-values.yaml" "$scratch/values.yaml"
    export PATH=$scratch/bin:$PATH KUBECONFIG=$scratch/kubeconfig HOME=$scratch/home
    cd "$scratch"

    begin_cluster
    for page in "${PAGES[@]}"; do
        run_page "docs/$page.md"
    done
    a_mistake_is_found
}

# Only `make test-mesh` builds it, and runs all of its commands in the pages.
link_istioctl() {
    local built
    built=$(find "$TOOLS/" -maxdepth 2 -path '*/interop-istio-*/istioctl' | head -n1)
    if [ -n "$built" ]; then
        ln -s "$built" "$scratch/bin/istioctl"
    else
        say "Skipped: the istioctl commands of the pages (make test-mesh builds it)"
        ln -s "$(type -P true)" "$scratch/bin/istioctl"
    fi
}

run_page() {
    local begin fence
    rm -rf fences && mkdir fences
    # Writes each into a file that is named by its first line's number.
    awk '/^ *```/ { inside = !inside; if (inside) { shell = $0 ~ /```sh$/; file = sprintf("fences/%05d", NR + 1) } next }
        inside && shell { print > file }' "$ROOT/$1"
    for fence in fences/*; do
        begin=$(head -n1 "$fence")
        case $begin in
        "# In the cluster's registry"* | *"once its pod runs"*) continue ;;
        "# In the cluster, once") begin_cluster ;;
        "# In the cluster"*) ;;
        *) continue ;; # e2e/tests/documentation runs or checks it
        esac
        bash -e -o pipefail "$fence" >said 2>&1 || fail "$1:$((10#${fence#*/})): these commands fail" "$(cat "$fence" said)"
    done
}

begin_cluster() {
    end_cluster
    rm -f "$KUBECONFIG"
    "$HOME_OF_TOOLS/cluster" "$KUBECONFIG" "${NAMESPACES[@]}" &
    cluster=$!
    for _ in {1..100}; do
        [ ! -s "$KUBECONFIG" ] || return 0
        sleep 0.1
    done
    fail "the stand-in for a cluster does not start"
}

end_cluster() {
    [ -z "${cluster-}" ] || kill "$cluster" 2>/dev/null || true
    [ -z "${cluster-}" ] || wait "$cluster" 2>/dev/null || true
    cluster=
}

a_mistake_is_found() {
    local wrong
    for wrong in "kubectl label namespace nowhere credence-filters=allowed" "kubectl -n payments get envoyextensionpolicys credence" \
        "kubectl -n credence rollout status statefulset/credence" "kubectl apply -f envoy-config/kubernetes/missing.yaml" \
        "helm upgrade other envoy-config/helm/credence-control-plane -n credence -f values.yaml"; do
        ! $wrong >said 2>&1 || fail "'$wrong' is accepted"
    done
}

main
