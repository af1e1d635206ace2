{{- define "slipway.name" -}}
{{- $name := .Release.Name -}}
{{- if not (contains "slipway" $name) }}{{ $name = printf "%s-slipway" $name }}{{ end -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "slipway.labels" -}}
app.kubernetes.io/name: slipway
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "slipway.select" -}}
app.kubernetes.io/name: slipway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "slipway.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "slipway.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end -}}
{{- end }}

{{/* Workers share the API's account unless they have their own. */}}
{{- define "slipway.workerAccount" -}}
{{- $own := .Values.serviceAccount.workers -}}
{{- $own.name | default (ternary (printf "%s-worker" (include "slipway.name" .)) (include "slipway.account" .) $own.create) -}}
{{- end }}

{{/* An image by digest where there is one, else by tag, else by the chart's own version. */}}
{{- define "slipway.image" -}}
{{- $image := .image -}}
{{- $tag := $image.tag | default .root.Chart.AppVersion -}}
{{- if $image.digest }}{{ printf "%s:%s@%s" $image.repository $tag $image.digest }}
{{- else }}{{ printf "%s:%s" $image.repository $tag }}{{ end -}}
{{- end }}

{{- define "slipway.redisSecret" -}}
{{- if .Values.redis.internal }}{{ .Values.redis.passwordSecret | default (printf "%s-redis" (include "slipway.name" .)) }}
{{- else }}{{ required "redis.urlSecret names the secret that holds the URL of an external Redis" .Values.redis.urlSecret }}{{ end -}}
{{- end }}

{{/* A worker group's values: its own over workerDefaults. */}}
{{- define "slipway.group" -}}
{{- mergeOverwrite (deepCopy .root.Values.workerDefaults) (deepCopy .group) | toYaml -}}
{{- end }}
