{{/* The name that everything begins with: the release's, short enough for the labels that Kubernetes makes of it. */}}
{{- define "credence.name" -}}
{{- .Release.Name | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{/* By what the control plane's pod is known. It cannot change in the life of a StatefulSet. */}}
{{- define "credence.selector" -}}
app: credence
app.kubernetes.io/component: control-plane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of a pod, but for the component: nothing that another version of the chart would restart it for. */}}
{{- define "credence.podLabels" -}}
app: credence
app.kubernetes.io/name: credence
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of everything else, but for the component. */}}
{{- define "credence.labels" -}}
{{ include "credence.podLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* What `metadata` of everything begins with. */}}
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

{{/* What the HTTP port speaks: HTTP or HTTPS. */}}
{{- define "credence.scheme" -}}
{{- if .Values.settingsSecret.name -}}
{{- ternary "HTTPS" "HTTP" .Values.settingsSecret.httpOverTls -}}
{{- else if dig "tls" "http" dict .Values.settings -}}
HTTPS
{{- else -}}
HTTP
{{- end -}}
{{- end -}}

{{/* How every pod of ours runs. */}}
{{- define "credence.podSecurity" -}}
runAsNonRoot: true
# The image's own.
runAsUser: 65532
runAsGroup: 65532
# The volume becomes writable, and the Secrets readable, by this group.
fsGroup: 65532
# Not every file of the ledger at every start.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "credence.containerSecurity" -}}
allowPrivilegeEscalation: false
# It writes to its volume only.
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
