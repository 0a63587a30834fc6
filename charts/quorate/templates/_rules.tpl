{{- /* Whether other namespaces than the release's are served. */}}
{{- define "quorate.elsewhere" -}}
{{- if and (.Values.scope).allNamespaces (.Values.scope).namespaces -}}
{{- fail "scope: write allNamespaces or namespaces, not both" -}}
{{- end -}}
{{- if or (.Values.scope).allNamespaces (.Values.scope).namespaces -}}true{{- end -}}
{{- end -}}

{{- define "quorate.subjects" -}}
- kind: ServiceAccount
  name: {{ include "quorate.account" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}

{{- define "quorate.rules.election" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [quorate-operator]
  verbs: [get, update]
{{- end -}}

{{- define "quorate.rules.declared" -}}
- apiGroups: [quorate.io]
  resources: [storageclusters]
  verbs: [get, list, watch, patch]
- apiGroups: [quorate.io]
  resources: [zones]
  verbs: [list, watch, patch]
- apiGroups: [quorate.io]
  resources: [zonerecoveries]
  verbs: [list, watch]
- apiGroups: [quorate.io]
  resources: [datavalidations]
  verbs: [list, watch, create, delete]
- apiGroups: [quorate.io]
  resources: [scheduleddatavalidations]
  verbs: [list, watch]
- apiGroups: [quorate.io]
  resources: [zonebackups]
  verbs: [list, watch, create, delete]
- apiGroups: [quorate.io]
  resources: [scheduledzonebackups, zonerestores, zonerepairs]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
{{- end -}}

{{- define "quorate.rules.nodes" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
{{- end -}}

{{- define "quorate.rules.leading" -}}
- apiGroups: [quorate.io]
  resources: [storageclusters/status, zones/status, zonerecoveries/status, datavalidations/status, scheduleddatavalidations/status, zonebackups/status, scheduledzonebackups/status, zonerestores/status, zonerepairs/status]
  verbs: [patch]
- apiGroups: [quorate.io]
  resources: [partitiontables, storagenodes]
  verbs: [get, list, watch, create, update, delete]
- apiGroups: [quorate.io]
  resources: [masterterms]
  verbs: [get, create, update]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [quorate-master-term]
  verbs: [get]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames:
    {{- range .Values.rbac.clusters }}
    - {{ . }}-quorate
    {{- end }}
  verbs: [get]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, create]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts, persistentvolumeclaims]
  verbs: [list, watch, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}
