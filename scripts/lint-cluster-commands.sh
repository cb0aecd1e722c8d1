#!/usr/bin/env bash
# Runs the commands for a cluster in docs/ as printed, page after page, with the real kubectl and helm, against a stand-in for
# a cluster (interop/cluster). The first run builds both, which takes minutes. CREDENCE_BIN names `credence`.
#
# It skips fences for the cluster's registry (e2e/tests/filter/module_image.rs pushes) and those that need a running pod.
set -euo pipefail
. "$(dirname "$0")/common.sh"

# In the order of an operator who installs everything.
PAGES=(operate/control-plane start/istio start/envoy-gateway)
LOG_ID=fedcba9876543210fedcba9876543210
DIGEST=$LOG_ID$LOG_ID
# The namespaces before Credence is installed.
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
    # A copy, because commands edit files.
    cp -R "$ROOT/envoy-config" "$scratch/envoy-config"
    cp "$ROOT/envoy-config/helm/credence-control-plane/ci/default-values.yaml" "$scratch/values.yaml"
    # The pages ask a running control plane for the log id, and `make oci` for the digest.
    sed -i "s/^log_id: .*/log_id: $LOG_ID/; s/^  sha256: .*/  sha256: $DIGEST/" \
        "$scratch/envoy-config/filter-settings/settings.yaml"
    export PATH=$scratch/bin:$PATH KUBECONFIG=$scratch/kubeconfig HOME=$scratch/home
    cd "$scratch"

    begin_cluster
    for page in "${PAGES[@]}"; do
        run_page "docs/$page.md"
    done
    the_token_is_stored
    istios_settings_stay
    plugins_enforce
    settings_reach_every_plugin
    mcp_rules_replace_the_others
    an_error_is_found
}

# Only `make test-mesh` builds istioctl, and runs its commands.
link_istioctl() {
    local built
    built=$(find "$TOOLS/" -maxdepth 2 -path '*/interop-istio-*/istioctl' | head -n1)
    if [ -n "$built" ]; then
        ln -s "$built" "$scratch/bin/istioctl"
    else
        say "Skipped: the commands of istioctl (make test-mesh builds it)"
        ln -s "$(type -P true)" "$scratch/bin/istioctl"
    fi
}

run_page() {
    local begin fence
    rm -rf fences && mkdir fences
    # Each fence into a file whose name is the number of its first line.
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

# The operator's token came by a pipe.
the_token_is_stored() {
    grep -qxE '[0-9a-f]{64}' operator.token || fail "the Secret of the operator's token has another content"
}

# The pod uses the settings for Istio. To apply the files again, in any order, does not undo this.
istios_settings_stay() {
    local applied='{.metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration}'
    kubectl apply -f envoy-config/istio/control-plane/settings.yaml -f envoy-config/kubernetes/namespace.yaml \
        -f envoy-config/kubernetes/control-plane.yaml >said 2>&1 || fail "the files cannot be applied again" "$(cat said)"
    # What kubectl sent last: the stand-in does not merge lists as a cluster does.
    kubectl -n credence get statefulset credence-control-plane -o "jsonpath=$applied" >said
    grep -o '"configMap":{[^}]*}' said >volumes || true
    [ "$(cat volumes)" = '"configMap":{"name":"credence-settings-istio"}' ] ||
        fail "control-plane.yaml does not use the settings for Istio alone" "$(cat volumes)"
    kubectl -n credence get configmap credence-settings-istio -o yaml >said
    grep -q 'client_ca: /etc/credence/istio' said || fail "the settings for Istio have no client_ca" "$(cat said)"
}

# The pages end with enforcement.
plugins_enforce() {
    local kind
    for kind in wasmplugin envoyextensionpolicy; do
        kubectl -n payments get "$kind" credence -o yaml >said || fail "the pages apply no $kind"
        ! grep -q 'mode"\{0,1\}: *"\{0,1\}shadow' said || fail "after the pages' last step, $kind is in shadow" "$(cat said)"
    done
}

# Kustomize puts the settings of filter-settings into every plugin, and `credence` accepts the result.
settings_reach_every_plugin() {
    local folder=kustomize/envoy-config key digest kustomization place files
    mkdir kustomize && cp -R "$ROOT/envoy-config" kustomize
    key=$(credence keygen --out kustomize/issuer.jwk 2>/dev/null | sed 's/.*"x":"\([^"]*\)".*/\1/')
    digest=$(printf '1%.0s' {1..64})
    sed -i "s/^log_id: .*/log_id: $LOG_ID/; s/x: [^}]*/x: $key/
        s/credence-filter:[0-9.]*/credence-filter:other/; s/\"0\{64\}\"/\"$digest\"/" $folder/filter-settings/settings.yaml
    for kustomization in "istio wasmplugin.yaml wasmplugin-gateway.yaml" "istio wasmplugin-waypoint.yaml" "istio envoyfilter.yaml" \
        "envoy-gateway gateway.yaml credence.yaml" "envoy-gateway credence.yaml"; do
        read -r place files <<<"$kustomization"
        printf 'resources: [%s]\ncomponents: [../filter-settings]\n' "${files// /, }" >"$folder/$place/kustomization.yaml"
        kubectl kustomize "$folder/$place" >built.yaml || fail "Kustomize cannot build $kustomization"
        grep -q "log_id: $LOG_ID" built.yaml || fail "$kustomization has another log_id" "$(cat built.yaml)"
        ! grep -n 'log_id: 0123\|yYBm-rE6VHWP\|"000000\|credence-filter:[0-9]' built.yaml >said ||
            fail "$kustomization keeps a value that settings.yaml has" "$(cat said)"
        credence config check built.yaml >said 2>&1 || fail "$kustomization does not load" "$(cat said)"
        only_the_mode_differs "$kustomization" "$folder/$place-shadow"
    done
}

# The plugins of envoy-config/mcp have its rule alone, and load.
mcp_rules_replace_the_others() {
    local place
    for place in istio envoy-gateway; do
        kubectl kustomize "$ROOT/envoy-config/mcp/$place" >built.yaml || fail "Kustomize cannot build mcp/$place"
        credence config check built.yaml >said 2>&1 || fail "mcp/$place does not load" "$(cat said)"
        if [ "$(grep -c ' hide_ungranted: true' built.yaml)" != 1 ] || grep -q 'payments.charge' built.yaml; then
            fail "mcp/$place has other rules" "$(cat built.yaml)"
        fi
        grep -q 'credence-filter-mcp' built.yaml || fail "mcp/$place has another module" "$(cat built.yaml)"
    done
}

# only_the_mode_differs NAME FOLDER: every plugin that the folder adds `mode: shadow` to is otherwise that of built.yaml.
only_the_mode_differs() {
    kubectl kustomize "$2" >shadow.yaml || fail "Kustomize cannot build $1 in shadow"
    credence config check shadow.yaml >said 2>&1 || fail "$1 in shadow does not load" "$(cat said)"
    diff built.yaml <(grep -v '^ *mode: shadow$' shadow.yaml) >said || fail "$1 in shadow differs in more than the mode" "$(cat said)"
    [ "$(grep -c '^ *mode: shadow$' shadow.yaml)" = "$(grep -c ' trust_anchors:$' shadow.yaml)" ] ||
        fail "not every plugin of $1 is in shadow" "$(cat shadow.yaml)"
}

an_error_is_found() {
    local wrong
    for wrong in "kubectl label namespace nowhere credence-filters=allowed" "kubectl -n payments get envoyextensionpolicys credence" \
        "kubectl -n credence rollout status statefulset/credence" "kubectl apply -f envoy-config/kubernetes/missing.yaml" \
        "helm upgrade other envoy-config/helm/credence-control-plane -n credence -f values.yaml" \
        "helm upgrade credence envoy-config/helm/credence-control-plane -n credence -f values.yaml --set initialise.enabled=true"; do
        ! $wrong >said 2>&1 || fail "'$wrong' succeeds"
    done
    grep -q 'the control plane of this release is installed' said || fail "Helm refuses a second first start otherwise" "$(cat said)"
}

main
