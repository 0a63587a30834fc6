{{- /* A release that is upgraded with --reuse-values lacks the values that later versions of the chart
have. So those are read as (.Values.GROUP).NAME, and with the default of values.yaml where that is
neither false nor empty. */}}
{{- define "quorate.name" -}}
{{- $own := printf "%s-operator" .Release.Name -}}
{{- if contains "quorate" .Release.Name -}}{{- $own | trunc 63 -}}
{{- else -}}{{- printf "%s-quorate-operator" .Release.Name | trunc 63 -}}
{{- end -}}
{{- end -}}

{{- define "quorate.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "quorate.name" .) -}}
{{- else -}}
{{- required "serviceAccount.name: name the ServiceAccount that is there, or write serviceAccount.create: true" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* An image: (dict "context" . "image" of the values). */}}
{{- define "quorate.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .context.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* Pods of DataValidations, ZoneBackups, ZoneRestores and ZoneRepairs. */}}
{{- define "quorate.jobSelector" -}}
matchLabels:
  app.kubernetes.io/name: quorate
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [validation, backup, restore, repair]}
{{- end -}}

{{- /* Pods that Spark makes for them. */}}
{{- define "quorate.executorSelector" -}}
matchLabels:
  app.kubernetes.io/name: quorate
  app.kubernetes.io/component: executor
{{- end -}}

{{- /* What the operator's pods are known by: it never changes, for a Deployment's selector cannot. */}}
{{- define "quorate.selector" -}}
app.kubernetes.io/name: quorate
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{- /* The pod of `helm test`. */}}
{{- define "quorate.testSelector" -}}
app.kubernetes.io/name: quorate
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: test
{{- end -}}

{{- define "quorate.scrapeAnnotations" -}}
{{- if (.Values.monitoring).scrapeAnnotations -}}
prometheus.io/scrape: "true"
prometheus.io/port: "8080"
prometheus.io/path: /metrics
{{- end -}}
{{- end -}}

{{- define "quorate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: quorate
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: quorate
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Pods of the namespaces of a list, in a peer of a NetworkPolicy. */}}
{{- define "quorate.inNamespaces" -}}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: In
      values:
        {{- range . }}
        - {{ . | quote }}
        {{- end }}
{{- end -}}

{{- /* Pods of the namespaces that are served, in a peer; empty for the release's own namespace. */}}
{{- define "quorate.servedNamespaces" -}}
{{- if (.Values.scope).allNamespaces -}}
namespaceSelector: {}
{{- else if (.Values.scope).namespaces -}}
{{- include "quorate.inNamespaces" (.Values.scope).namespaces -}}
{{- end -}}
{{- end -}}

{{- /* Agents as peers of a NetworkPolicy: (dict "agents" .Values.networkPolicy.agents "namespaces" "…"
for others than the policy's own). */}}
{{- define "quorate.agentPeers" -}}
- podSelector:
    matchLabels:
      {{- toYaml .agents.podLabels | nindent 6 }}
{{- with .namespaces }}
  {{- . | nindent 2 }}
{{- end }}
{{- range .agents.cidrs }}
- ipBlock: {cidr: {{ . }}}
{{- end }}
{{- end -}}

{{- /* Metadata of an object: (dict "context" . "name" "…" "component" "…" "cluster" true for one without a namespace, "namespace" for another than the release's). */}}
{{- define "quorate.metadata" -}}
name: {{ .name | quote }}
{{- if not .cluster }}
namespace: {{ .namespace | default .context.Release.Namespace | quote }}
{{- end }}
labels:
  {{- include "quorate.labels" .context | nindent 2 }}
  app.kubernetes.io/component: {{ .component | default "operator" }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := merge (dict) (.annotations | default dict) .context.Values.commonAnnotations }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
