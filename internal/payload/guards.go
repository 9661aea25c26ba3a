package payload

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// The apiVersion and kind of the upstream type.
const (
	upstreamAPIVersion = "kubelet.config.k8s.io/v1beta1"
	kubeletKind        = "KubeletConfiguration"
)

func checkKind(fields map[string]any) string {
	apiVersion, _ := fields["apiVersion"].(string)
	kind, _ := fields["kind"].(string)
	switch {
	case apiVersion == upstreamAPIVersion && kind == kubeletKind:
		return ""
	case apiVersion == "evenkeel.dev/v1alpha1" && kind == kubeletKind:
		// The grouped form: this is where it is to be turned into the upstream one, and its trial read.
		return "apiVersion evenkeel.dev/v1alpha1 is not supported yet by this agent, use " + upstreamAPIVersion
	default:
		return fmt.Sprintf("apiVersion is %s and kind is %s, but must be \"%s\" and \"%s\"",
			quote(apiVersion), quote(kind), upstreamAPIVersion, kubeletKind)
	}
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

func relativePath(fields map[string]any) string {
	for _, path := range pathFields {
		for name, value := range lookup(fields, path) {
			// The kubelet leaves an empty path alone: it means "none".
			if s, ok := value.(string); ok && s != "" && !filepath.IsAbs(s) {
				return fmt.Sprintf("%s is the relative path %s; paths must be absolute", name, quote(s))
			}
		}
	}
	return ""
}

func healthOff(fields map[string]any) string {
	for name, value := range lookup(fields, []string{"healthzPort"}) {
		if value == int64(0) || value == float64(0) {
			return name + " is 0, which switches the health endpoint off: nobody could tell whether the kubelet is healthy"
		}
	}
	return ""
}

// lookup yields every field at path, whatever the case of its name: Go's own JSON decoder, which the kubelet uses for
// drop-ins, takes them all.
func lookup(fields map[string]any, path []string) func(yield func(string, any) bool) {
	return func(yield func(string, any) bool) { walk(fields, path, "", yield) }
}

func walk(fields map[string]any, path []string, prefix string, yield func(string, any) bool) bool {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
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
