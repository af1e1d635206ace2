{{- define "slipway.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "slipway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What every program of ours is told; what is secret comes by reference only. */}}
{{- define "slipway.env" -}}
- name: SLIPWAY_LOG_FORMAT
  value: {{ .Values.logFormat | quote }}
- name: SLIPWAY_LOG_LEVEL
  value: {{ .Values.logLevel | quote }}
{{- if .Values.redis.internal }}
- name: REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ include "slipway.redisSecret" . }}, key: password}}
- name: SLIPWAY_REDIS_URL
  value: {{ printf "redis://:$(REDIS_PASSWORD)@%s-redis:6379/0" (include "slipway.name" .) | quote }}
{{- else }}
- name: SLIPWAY_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ include "slipway.redisSecret" . }}, key: {{ .Values.redis.urlKey }}}}
{{- end }}
{{- with .Values.storage.endpoint }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- with .Values.storage.region }}
- name: AWS_DEFAULT_REGION
  value: {{ . | quote }}
{{- end }}
{{- with .Values.tracing.endpoint }}
- name: SLIPWAY_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The store's keys from a secret, if one is named. */}}
{{- define "slipway.storageKeys" -}}
{{- with . }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: {secretKeyRef: {name: {{ . }}, key: AWS_ACCESS_KEY_ID}}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: {secretKeyRef: {name: {{ . }}, key: AWS_SECRET_ACCESS_KEY}}
{{- end }}
{{- end }}

{{- define "slipway.moreEnv" -}}
{{- range $name, $value := .env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- range .secretEnv }}
- name: {{ .name }}
  valueFrom: {secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}}
{{- end }}
{{- end }}

{{- define "slipway.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
