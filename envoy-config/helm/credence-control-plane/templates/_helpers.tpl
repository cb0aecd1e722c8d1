{{/* The prefix of all names: the release's name, short enough for the labels that Kubernetes derives from it. */}}
{{- define "credence.name" -}}
{{- .Release.Name | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{/* The labels that select the control plane's pod. A StatefulSet cannot change them. */}}
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

{{/* Labels of all other objects, except the component. */}}
{{- define "credence.labels" -}}
{{ include "credence.podLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The common part of all `metadata`. */}}
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

{{/* The protocol of the HTTP port: HTTP or HTTPS. */}}
{{- define "credence.scheme" -}}
{{- if .Values.settingsSecret.name -}}
{{- ternary "HTTPS" "HTTP" .Values.settingsSecret.httpOverTls -}}
{{- else if dig "tls" "http" dict .Values.settings -}}
HTTPS
{{- else -}}
HTTP
{{- end -}}
{{- end -}}

{{/* The security context of every pod. */}}
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
# The process writes only to its volume.
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
