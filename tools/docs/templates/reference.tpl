{{- define "gvList" -}}
# API reference

Made by `make generate` from the types in `api/v1alpha1`; `kubectl explain nodeconfig.spec --recursive` says the same in a
terminal. What the two kinds are for: [rollouts](rollouts.md), [operating](operating.md).
{{ range . }}
Group and version `{{ .GroupVersionString }}`:
{{- range .SortedKinds }} [{{ . }}](#{{ lower . }}){{ end }}
{{ range .SortedTypes }}{{ template "type" . }}{{ end }}
{{- end }}
{{- end -}}

{{- define "type" -}}
{{- $type := . -}}
{{- if markdownShouldRenderType $type }}
## {{ $type.Name }}

{{ regexReplaceAll "\\s+" $type.Doc " " | trim | wrap 124 }}
{{ if $type.IsAlias }}
A {{ markdownRenderTypeLink $type.UnderlyingType }}.
{{ end -}}
{{ if $type.EnumValues }}
| value | |
| --- | --- |
{{ range $type.EnumValues -}}
| `{{ .Name }}` | {{ template "words" markdownRenderFieldDoc .Doc }} |
{{ end -}}
{{ end -}}
{{ if $type.References }}
In
{{- range $i, $t := $type.SortedReferences }}{{ if $i }},{{ end }} {{ markdownRenderTypeLink $t }}{{ end }}.
{{ end -}}
{{ if $type.Members }}
| field | type | |
| --- | --- | --- |
{{ range $type.Members -}}
{{ if ne .Name "metadata" -}}
| `{{ .Name }}` | {{ regexReplaceAll "\\[UID\\]\\([^)]*\\)" (markdownRenderType .Type) "string (a UID)" }}{{ template "bounds" . }} | {{ template "words" markdownRenderFieldDoc .Doc }} |
{{ end -}}
{{ end -}}
{{ end -}}
{{ end -}}
{{- end -}}

{{- define "words" -}}
{{ regexReplaceAll "\\s+" (replace "<br />" " " .) " " | trim }}
{{- end -}}

{{- define "bounds" -}}
{{- range .Validation -}}
{{- $rule := markdownRenderFieldDoc . -}}
{{- if hasPrefix "Required" $rule }}, required{{ else if regexMatch "^(Max|Min|Enum|Pattern|Default)" $rule }}, {{ template "words" (regexReplaceAll ": " $rule " ") }}{{ end -}}
{{- end -}}
{{- with .Default }}, default {{ markdownRenderDefault . }}{{ end -}}
{{- end -}}
