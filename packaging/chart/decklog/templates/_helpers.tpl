{{- define "decklog.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* 52 characters: a StatefulSet adds a hash to it in a label of its Pods, which has 63. */}}
{{- define "decklog.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "decklog.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "decklog.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* A role that is not bound to a namespace has the release's in its name: two releases of one name are two. */}}
{{- define "decklog.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "decklog.fullname" .) -}}
{{- end -}}

{{- define "decklog.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "decklog.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "decklog.selector" -}}
app.kubernetes.io/name: {{ include "decklog.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "decklog.labels" -}}
{{ include "decklog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Helm takes every number of a values file for a float, and no key of decklog's is one. */}}
{{- define "decklog.integers" -}}
{{- $map := . -}}
{{- range $key, $value := $map -}}
{{- if kindIs "map" $value -}}
{{- include "decklog.integers" $value -}}
{{- else if kindIs "slice" $value -}}
{{- range $value -}}{{- if kindIs "map" . -}}{{- include "decklog.integers" . -}}{{- end -}}{{- end -}}
{{- else if kindIs "float64" $value -}}
{{- $_ := set $map $key (int64 $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* NAMESPACE/NAME. */}}
{{- define "decklog.lease" -}}
{{- dig "ha" "lease" (printf "%s/%s" .Release.Namespace (include "decklog.fullname" .)) .Values.config -}}
{{- end -}}

{{/* The configuration, with what the chart decides. */}}
{{- define "decklog.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $state := merge (dict "path" "/var/lib/decklog") (default dict $config.state) -}}
{{- $http := merge (dict "listen" (printf "0.0.0.0:%v" .Values.service.port) "allow_remote" true) (default dict $config.http) -}}
{{- $config = merge (dict "state" $state "http" $http) $config -}}
{{- if .Values.ha.enabled -}}
{{- if not (dig "ha" "log" "" $config) -}}
{{- fail "ha.enabled: set config.ha.log to the name of the sink in config.sink that keeps the shared log: of type postgres, s3, nats or kafka" -}}
{{- end -}}
{{- if not (dig "redact" "key_file" "" $config) -}}
{{- fail "ha.enabled: set config.redact.key_file, such as ${CREDENTIALS_DIRECTORY}/NAME/KEY with {name: NAME} in `secrets`: both Pods have to redact with one key" -}}
{{- end -}}
{{- $config = merge (dict "ha" (merge (deepCopy $config.ha) (dict "lease" (include "decklog.lease" .)))) $config -}}
{{- else if $config.ha -}}
{{- fail "config.ha: set ha.enabled=true, which makes the second Pod and the rights for the Lease" -}}
{{- end -}}
{{- include "decklog.integers" $config -}}
{{- toToml $config -}}
{{- end -}}

{{- define "decklog.scheme" -}}
{{- if dig "http" "tls_cert_file" "" .Values.config }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}

{{/*
Rules, as YAML, for the watches in `watches`; what `decklog rbac` prints for them. A name without a group is one of the core
group's: no other can be told from here, where the cluster is not asked.
*/}}
{{/* The rights on what brings new kinds, where a watch may take in what an extension serves. */}}
{{- define "decklog.definitions" -}}
{{- $builtIn := list "admissionregistration.k8s.io" "apiextensions.k8s.io" "apiregistration.k8s.io" "authentication.k8s.io" "authorization.k8s.io" "certificates.k8s.io" "coordination.k8s.io" "discovery.k8s.io" "events.k8s.io" "flowcontrol.apiserver.k8s.io" "internal.apiserver.k8s.io" "networking.k8s.io" "node.k8s.io" "rbac.authorization.k8s.io" "resource.k8s.io" "scheduling.k8s.io" "storage.k8s.io" "storagemigration.k8s.io" -}}
{{- $extensions := false -}}
{{- $all := false -}}
{{- range $watch := .watches -}}
{{- range $name := $watch.resources -}}
{{- $group := regexReplaceAll "^[^.]*[.]?" $name "" -}}
{{- if or (eq $name "*") (eq $name "*.*") -}}
  {{- $extensions = true -}}
  {{- $all = or $all (not $watch.namespaces) -}}
{{- else if and (contains "." $group) (not (has $group $builtIn)) -}}
  {{- $extensions = true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $extensions (not $all) }}
# With them decklog records a new kind at once, and without them a little later.
- apiGroups: ["apiextensions.k8s.io"]
  resources: ["customresourcedefinitions"]
  verbs: ["list", "watch"]
- apiGroups: ["apiregistration.k8s.io"]
  resources: ["apiservices"]
  verbs: ["list", "watch"]
{{- end -}}
{{- end -}}

{{- define "decklog.rules" -}}
{{- $core := list "configmaps" "endpoints" "events" "limitranges" "namespaces" "nodes" "persistentvolumeclaims" "persistentvolumes" "pods" "podtemplates" "replicationcontrollers" "resourcequotas" "secrets" "serviceaccounts" "services" -}}
{{- $groups := dict -}}
{{- range $watch := .watches -}}
{{- range $name := $watch.resources -}}
{{- $group := "" -}}
{{- $plural := regexReplaceAll "[.].*$" $name "" -}}
{{- if eq $plural "*" -}}
  {{- if and $watch.exclude (not $.wildcard) -}}
    {{- fail (printf "config.watch: RBAC cannot leave `exclude` out of the wildcard %q. Name the resources instead, or give rbac.rules what `decklog rbac` prints, or set rbac.wildcard=true to grant all of it" $name) -}}
  {{- end -}}
  {{- $group = ternary "*" (trimPrefix "*." $name) (eq $name "*") -}}
{{- else if contains "." $name -}}
  {{- $group = trimPrefix (printf "%s." $plural) $name -}}
{{- else if not (has $name $core) -}}
  {{- fail (printf "config.watch: %q is no resource of the core group: write PLURAL.GROUP, such as deployments.apps. `kubectl api-resources -o name` has them" $name) -}}
{{- end -}}
{{- $_ := set $groups $group (append (default list (get $groups $group)) $plural | uniq | sortAlpha) -}}
{{- end -}}
{{- end -}}
{{- /* A wildcard says the rest. */ -}}
{{- if has "*" (default list (get $groups "*")) -}}
{{- $groups = dict "*" (list "*") -}}
{{- end -}}
{{- range $group, $plurals := $groups }}
{{- if has "*" $plurals }}{{ $plurals = list "*" }}{{ end }}
- apiGroups: [{{ $group | quote }}]
  resources: {{ toJson $plurals }}
  verbs: ["list", "watch"]
{{- end -}}
{{- end -}}
