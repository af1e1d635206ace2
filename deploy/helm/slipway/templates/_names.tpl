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

{{/* A worker group's image: that of its device, or the one for its release of torch; `image` overrides parts. */}}
{{- define "slipway.workerImage" -}}
{{- $image := deepCopy (ternary .root.Values.images.workerCuda .root.Values.images.workerCpu (eq .group.device "cuda")) -}}
{{- if .group.torch -}}
{{- $tag := printf "%s-torch%s" ($image.tag | default .root.Chart.AppVersion) .group.torch -}}
{{- $image = dict "repository" $image.repository "tag" $tag "digest" "" -}}
{{- end -}}
{{- with .group.image -}}
{{- $image = dict "repository" (.repository | default $image.repository) "tag" (.tag | default $image.tag) "digest" .digest -}}
{{- end -}}
{{- $image | toYaml -}}
{{- end }}

{{/* The releases of torch that the groups have, so that a job can name one whose group has no worker now. */}}
{{- define "slipway.torchReleases" -}}
{{- $releases := list -}}
{{- range $own := .Values.workers -}}
{{- $group := include "slipway.group" (dict "root" $ "group" $own) | fromYaml -}}
{{- $releases = append $releases ($group.torch | default $.Values.images.torch) -}}
{{- end -}}
{{- $releases | uniq | sortAlpha | join "," -}}
{{- end }}

{{- define "slipway.redisSecret" -}}
{{- if .Values.redis.internal }}{{ .Values.redis.passwordSecret | default (printf "%s-redis" (include "slipway.name" .)) }}
{{- else }}{{ required "redis.urlSecret names the secret that holds the URL of an external Redis" .Values.redis.urlSecret }}{{ end -}}
{{- end }}

{{/* A worker group's values: its own over workerDefaults. */}}
{{- define "slipway.group" -}}
{{- mergeOverwrite (deepCopy .root.Values.workerDefaults) (deepCopy .group) | toYaml -}}
{{- end }}
