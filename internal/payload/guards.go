package payload

import (
	"fmt"
	"iter"
	"path/filepath"
	"strings"
)

// The apiVersions and the kind that a payload may have.
const (
	UpstreamAPIVersion = "kubelet.config.k8s.io/v1beta1"
	GroupedAPIVersion  = "evenkeel.dev/v1alpha1"
	KubeletKind        = "KubeletConfiguration"
)

func checkKind(fields map[string]any) string {
	apiVersion, _ := fields[keyAPIVersion].(string)
	kind, _ := fields[keyKind].(string)
	known := apiVersion == UpstreamAPIVersion || apiVersion == GroupedAPIVersion
	if known && kind == KubeletKind {
		return ""
	}
	must := fmt.Sprintf("%q or %q,", UpstreamAPIVersion, GroupedAPIVersion)
	if known {
		must = quote(apiVersion)
	}
	hint := ""
	if kind == "ConfigMap" {
		hint = "; give what stands under its data key, not the ConfigMap itself"
	}
	return fmt.Sprintf("apiVersion is %s and kind is %s, but must be %s and %q%s", quote(apiVersion), quote(kind), must, KubeletKind, hint)
}

// pathFields are the fields that the kubelet resolves against the directory of its configuration file when they are
// relative (KubeletConfigurationPathRefs). That directory is the agent's, and changes with every revision.
var pathFields = [][]string{
	{"staticPodPath"},
	{"authentication", "x509", "clientCAFile"},
	{"tlsCertFile"},
	{"tlsPrivateKeyFile"},
	{"resolvConf"},
	{"volumePluginDir"},
	{"podLogsDir"},
}

// guard refuses upstream fields that no kubelet should be shown; called names a field as the payload does.
func guard(fields map[string]any, called func(path string) string) *Error {
	if words := relativePath(fields, called); words != "" {
		return &Error{Problem: ProblemRelativePath, Words: words}
	}
	if words := healthOff(fields, called); words != "" {
		return &Error{Problem: ProblemHealthDisabled, Words: words}
	}
	return nil
}

func relativePath(fields map[string]any, called func(string) string) string {
	for _, path := range pathFields {
		for name, value := range Lookup(fields, path) {
			// The kubelet leaves an empty path alone: it means "none".
			if s, ok := value.(string); ok && s != "" && !filepath.IsAbs(s) {
				return fmt.Sprintf("%s is the relative path %s; paths must be absolute", called(name), quote(s))
			}
		}
	}
	return ""
}

func healthOff(fields map[string]any, called func(string) string) string {
	for name, value := range Lookup(fields, []string{"healthzPort"}) {
		if value == int64(0) || value == float64(0) {
			return called(name) + " is 0, which switches the health endpoint off: nobody could tell whether the kubelet is healthy"
		}
	}
	return ""
}

// Lookup yields every field at a path of JSON names, with the path as it is written, whatever the case of its names: Go's
// own JSON decoder, which the kubelet uses for drop-ins, takes them all.
func Lookup(fields map[string]any, path []string) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) { walk(fields, path, "", yield) }
}

func walk(fields map[string]any, path []string, prefix string, yield func(string, any) bool) bool {
	for _, key := range keys(fields) {
		if !strings.EqualFold(key, path[0]) {
			continue
		}
		name, value := prefix+key, fields[key]
		if len(path) == 1 {
			if !yield(name, value) {
				return false
			}
		} else if inner, ok := value.(map[string]any); ok && !walk(inner, path[1:], name+".", yield) {
			return false
		}
	}
	return true
}
