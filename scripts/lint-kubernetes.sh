#!/usr/bin/env bash
# Checks the manifests and the chart of the control plane, and the resources for Envoy Gateway, with the code of Kubernetes
# and Helm and with published definitions (interop/kubernetes). Checks the chart's settings and arguments with `credence`,
# which CREDENCE_BIN names.
set -euo pipefail
. "$(dirname "$0")/common.sh"

CHART=helm/credence-control-plane
ISTIO=istio/control-plane/settings.yaml

main() {
    local prepared
    require openssl openssl "making the control plane's keys and certificates"
    prepared=$("$ROOT/scripts/setup-interop.sh" kubernetes)
    case $prepared in
    skipped*) return ;;
    esac
    TOOL=${prepared#ready kubernetes }/kubernetes
    DEFINITIONS=${prepared#ready kubernetes }/definitions
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    cd "$ROOT/envoy-config"

    "$TOOL" check "$DEFINITIONS" kubernetes/*.yaml $ISTIO envoy-gateway/{gateway,credence,from-http}.yaml
    "$TOOL" chart "$DEFINITIONS" "$CHART"
    "$TOOL" same "$DEFINITIONS" "$CHART" "$CHART/ci/default-values.yaml" \
        kubernetes/{namespace,control-plane,servicemonitor}.yaml
    "$TOOL" has "$DEFINITIONS" "$CHART" "$CHART/ci/first-start-values.yaml" kubernetes/{namespace,first-start}.yaml
    credence_takes_what_the_chart_makes
    errors_are_found
}

credence_takes_what_the_chart_makes() {
    local values settings=$scratch/settings/credence.yaml argument said
    local arguments
    mkdir -p "$scratch"/{data,istio,note,settings,operator,tls}
    ln -s tls "$scratch/store"
    (umask 077 && openssl rand -hex 32 >"$scratch/operator/token")
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=credence -days 1 \
        -keyout "$scratch/tls/tls.key" -out "$scratch/tls/tls.crt" 2>/dev/null
    cp "$scratch/tls/tls.crt" "$scratch/tls/ca.crt"
    cp "$scratch/tls/tls.key" "$scratch/istio/key.pem"
    cp "$scratch/tls/tls.crt" "$scratch/istio/cert-chain.pem"
    cp "$scratch/tls/tls.crt" "$scratch/istio/root-cert.pem"
    for values in "$CHART"/ci/*-values.yaml; do
        # If a Secret has the settings, there are none.
        if ! "$TOOL" settings "$CHART" "$values" >"$settings" 2>"$scratch/said"; then
            grep -q 'the chart has no \*core.ConfigMap' "$scratch/said" || fail "$values cannot be rendered" "$(cat "$scratch/said")"
            echo '{}' >"$settings"
        fi
        "$CREDENCE_BIN" config check --control-plane "$settings" >/dev/null
        sed -i "s:/etc/credence/tls:$scratch/tls:; s:/etc/credence/istio:$scratch/istio:; s:/var/lib/credence-note:$scratch/note:" \
            "$settings"
        # A replica has made a folder there.
        rm -rf "$scratch/data"
        mkdir "$scratch/data"
        arguments=()
        while read -r argument; do
            argument=${argument/\/var\/lib\/credence/$scratch/data}
            argument=${argument/\/etc\/credence\/settings/$scratch/settings}
            argument=${argument/\/etc\/credence\/store/$scratch/store}
            arguments+=("${argument/\/run\/credence\/operator/$scratch/operator}")
        done < <("$TOOL" arguments "$CHART" "$values")
        # It accepts all arguments, and stops at the empty folder, or because the store has no secrets here.
        said=$("$CREDENCE_BIN" "${arguments[@]}" 2>&1) || true
        [[ $said == *"start once with --init"* || $said == *"32 random bytes"* ]] || fail "credence does not accept the arguments of $values" "$said"
    done
}

# Each check fails on a file with an error.
errors_are_found() {
    local kubernetes=kubernetes/control-plane.yaml gateway=envoy-gateway/credence.yaml
    refused $kubernetes 's/terminationGracePeriodSeconds:/terminationGracePeriod:/' 'unknown field'
    refused $kubernetes 's/runAsNonRoot: true/runAsNonRoot: false/' 'Pod Security Standard restricted'
    refused $kubernetes 's/^      app: credence/      app: other/' 'does not match template'
    refused $kubernetes 's/periodSeconds: 2$/periodSeconds: -2/' 'greater than or equal to 0'
    refused $kubernetes 's/name: grpc-filters, port: 7071/name: grpc-filters, port: 70710/' 'between 1 and 65535'
    refused kubernetes/namespace.yaml 's/ReadWriteOnce/ReadWriteTwice/' 'supported values'
    refused kubernetes/first-start.yaml 's/restartPolicy: Never/restartPolicy: Always/' 'restartPolicy'
    refused kubernetes/servicemonitor.yaml 's/interval: 15s/interval: soon/' 'interval'
    refused kubernetes/podmonitor.yaml 's/podMetricsEndpoints:/podEndpoints:/' 'unknown field'
    refused $gateway 's/type: Image/type: HTTP/' 'If type is HTTP'
    refused $gateway 's/failOpen: false/failShut: true/' 'unknown field'
    refused $kubernetes 's/{name: istio-certificate, emptyDir/{name: another, emptyDir/' 'Not found: "istio-certificate"'
    refused $ISTIO 's/policyTypes: \[Egress\]/policyTypes: [Outgoing]/' 'policyTypes'
    refused_values 'settings: {acces: {}}' "additional properties 'acces' not allowed"
    refused_values 'extraArgs: [--init]' 'extraArgs'
    refused_values 'image: {digest: ""}' 'digest'
    refused_values 'drainPromise: 11s' 'drainPromise'
    refused_values 'maxStaleness: 1s' 'maxStaleness'
    refused_values $'standby: {enabled: true}\nstorage: {accessMode: ReadWriteOncePod}' 'a ReadWriteOncePod volume is for one pod'
}

# refused FILE EXPRESSION SAID: the file, changed by sed's expression, is refused with this message.
refused() {
    local said
    sed "$2" "$1" >"$scratch/wrong.yaml"
    ! cmp -s "$1" "$scratch/wrong.yaml" || fail "'$2' changes nothing in $1"
    ! said=$("$TOOL" check "$DEFINITIONS" "$scratch/wrong.yaml" 2>&1) || fail "$1 with '$2' is accepted"
    [[ $said == *"$3"* ]] || fail "$1 with '$2' is refused with another message:" "$said"
}

refused_values() {
    local said
    { cat "$CHART/ci/default-values.yaml" && echo; } | grep -v "^${1%%:*}:" >"$scratch/values.yaml"
    [ "${1%%:*}" = image ] && sed -i '/^  digest:/d' "$scratch/values.yaml"
    echo "$1" >>"$scratch/values.yaml"
    ! said=$("$TOOL" settings "$CHART" "$scratch/values.yaml" 2>&1) || fail "the invalid value $1 is accepted"
    [[ $said == *"$2"* ]] || fail "the value $1 is refused with another message:" "$said"
}

main
