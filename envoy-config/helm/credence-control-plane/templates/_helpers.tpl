{{/* The prefix of all names: the release's name, short enough for the labels that Kubernetes derives from it. */}}
{{- define "credence.name" -}}
{{- .Release.Name | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{/* The labels that select the control plane's pods. They cannot change during the life of a StatefulSet. */}}
{{- define "credence.selector" -}}
app: credence
app.kubernetes.io/component: control-plane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of a pod, except the component. None depends on the chart's version, which would restart the pod. */}}
{{- define "credence.podLabels" -}}
app: credence
app.kubernetes.io/name: credence
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of other objects, except the component. */}}
{{- define "credence.labels" -}}
{{ include "credence.podLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The first members of `metadata`. */}}
{{- define "credence.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "credence.labels" . | nindent 2 }}
  app.kubernetes.io/component: control-plane
{{- end -}}

{{- define "credence.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}@{{ .Values.image.digest }}
{{- end -}}

{{- define "credence.claim" -}}
{{- .Values.storage.existingClaim | default (printf "%s-data" (include "credence.name" .)) -}}
{{- end -}}

{{- define "credence.noteClaim" -}}
{{- .Values.publishedNote.existingClaim | default (printf "%s-note" (include "credence.name" .)) -}}
{{- end -}}

{{/* Changes with each Secret that the pod reads at its start only and that the chart does not own. Empty if the cluster was
not asked (`helm template`) and no secretsVersion is set. A resource version reveals nothing about a Secret. */}}
{{- define "credence.secretsVersion" -}}
{{- $versions := list .Values.secretsVersion -}}
{{- if not .Values.secretsVersion -}}
{{- range compact (list .Values.operatorToken.existingSecret .Values.settingsSecret.name) -}}
{{- $found := lookup "v1" "Secret" $.Release.Namespace . -}}
{{- $versions = append $versions (dig "metadata" "resourceVersion" "" $found) -}}
{{- end -}}
{{- end -}}
{{- compact $versions | join "-" -}}
{{- end -}}

{{/* The arguments of a log on etcd. */}}
{{- define "credence.storeArguments" -}}
{{- with .Values.store -}}
- --store={{ .address }}
- --secrets=/etc/credence/store
{{- if .tls }}
- --store-ca=/etc/credence/store/ca.crt
{{- end }}
{{- if .certificate }}
- --store-cert=/etc/credence/store/tls.crt
- --store-key=/etc/credence/store/tls.key
{{- end }}
{{- with .user }}
- --store-user={{ . }}
- --store-password-file=/etc/credence/store/password
{{- end }}
{{- end }}
{{- end -}}

{{/* With standby: both pods on one node if the volume is of one node, else on different nodes if possible. Replicas: on
different nodes and in different zones if possible. */}}
{{- define "credence.affinity" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- if .Values.standby.enabled -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "credence.selector" . | fromYaml)) -}}
{{- if eq .Values.storage.accessMode "ReadWriteMany" -}}
{{- $weighted := dict "weight" 100 "podAffinityTerm" $term -}}
{{- $affinity = merge $affinity (dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list $weighted))) -}}
{{- else -}}
{{- $affinity = merge $affinity (dict "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term))) -}}
{{- end -}}
{{- end -}}
{{- if .Values.store.address -}}
{{- $selector := dict "matchLabels" (include "credence.selector" . | fromYaml) -}}
{{- $terms := list -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" -}}
{{- $terms = append $terms (dict "weight" 100 "podAffinityTerm" (dict "topologyKey" . "labelSelector" $selector)) -}}
{{- end -}}
{{- $affinity = merge $affinity (dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" $terms)) -}}
{{- end -}}
{{- with $affinity }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* The scheme of the HTTP port: HTTP or HTTPS. */}}
{{- define "credence.scheme" -}}
{{- if .Values.settingsSecret.name -}}
{{- ternary "HTTPS" "HTTP" .Values.settingsSecret.httpOverTls -}}
{{- else if dig "tls" "http" dict .Values.settings -}}
HTTPS
{{- else -}}
HTTP
{{- end -}}
{{- end -}}

{{/* The security context of all pods. */}}
{{- define "credence.podSecurity" -}}
runAsNonRoot: true
# The user of the image.
runAsUser: 65532
runAsGroup: 65532
# This group can write to the volume and read the Secrets.
fsGroup: 65532
# Do not change every file of the ledger at every start.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "credence.containerSecurity" -}}
allowPrivilegeEscalation: false
# It writes to its volumes only.
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
