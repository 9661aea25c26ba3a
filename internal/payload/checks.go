// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
)

// Allowed apiVersions and kind of a payload.
const (
	UpstreamAPIVersion = "kubelet.config.k8s.io/v1beta1"
	GroupedAPIVersion  = "evenkeel.dev/v1alpha1"
	KubeletKind        = "KubeletConfiguration"
)

func checkKind(fields map[string]any) error {
	apiVersion, _ := fields[keyAPIVersion].(string)
	kind, _ := fields[keyKind].(string)
	known := apiVersion == UpstreamAPIVersion || apiVersion == GroupedAPIVersion
	if known && kind == KubeletKind {
		return nil
	}

	want := fmt.Sprintf("%q or %q,", UpstreamAPIVersion, GroupedAPIVersion)
	if known {
		want = quote(apiVersion)
	}

	hint := ""
	switch kind {
	case "ConfigMap":
		hint = "; pass the value of its data key, not the ConfigMap"
	case "NodeConfigRollout":
		hint = "; this file is for kubectl apply -f FILE or kubectl evenkeel rollout plan -f FILE"
	}

	return newError(ProblemKind, "apiVersion is %s and kind is %s, but must be %s and %q%s", quote(apiVersion), quote(kind), want, KubeletKind,
		hint)
}

// pathFields are the fields whose relative paths the kubelet resolves against
// the directory of its configuration file (KubeletConfigurationPathRefs). The
// agent uses a different directory for each revision.
var pathFields = [][]string{
	{"staticPodPath"},
	{"authentication", "x509", "clientCAFile"},
	{"tlsCertFile"},
	{"tlsPrivateKeyFile"},
	{"resolvConf"},
	{"volumePluginDir"},
	{"podLogsDir"},
}

// checkFields rejects values that are never allowed.
func (p *Payload) checkFields() error {
	for _, path := range pathFields {
		for name, value := range Lookup(p.Fields, path) {
			// An empty path means "none" to the kubelet.
			if s, ok := value.(string); ok && s != "" && !filepath.IsAbs(s) {
				return newError(ProblemRelativePath, "%s is the relative path %s; paths must be absolute", p.Shown(name), quote(s))
			}
		}
	}

	for name, value := range Lookup(p.Fields, []string{"healthzPort"}) {
		if value == int64(0) || value == float64(0) {
			return newError(ProblemHealthDisabled, "%s is 0, which disables the health endpoint: the kubelet's health could not be checked",
				p.Shown(name))
		}
	}

	return nil
}

// Lookup yields the fields at a path of JSON names, in any case, with the path
// as written: the kubelet decodes drop-ins with Go's JSON decoder, which
// ignores case.
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

// ZeroValues maps the fields that a kubelet omits if they are zero, when it
// prints its configuration in the API's form, to their zero values. Lists,
// mappings and pointers are missing, because omitting them equals empty.
var ZeroValues = func() map[string]any {
	values := map[string]any{}
	for zero, fields := range map[any][]string{
		"": {
			"address", "authentication.x509.clientCAFile", "authorization.mode", "cgroupDriver", "cgroupRoot", "clusterDomain",
			"configMapAndSecretChangeDetectionStrategy", "containerLogMaxSize", "contentType", "cpuManagerPolicy", "hairpinMode",
			"healthzBindAddress", "imagePullCredentialsVerificationPolicy", "imageServiceEndpoint", "kubeReservedCgroup",
			"kubeletCgroups", "logging.format", "memoryManagerPolicy", "memoryReservationPolicy", "memorySwap.swapBehavior", "podCIDR",
			"podLogsDir", "providerID", "reservedSystemCPUs", "showHiddenMetricsForVersion", "staticPodPath", "staticPodURL",
			"systemCgroups", "systemReservedCgroup", "tlsCertFile", "tlsMinVersion", "tlsPrivateKeyFile", "topologyManagerPolicy",
			"topologyManagerScope", "volumePluginDir",
		},
		false: {
			"enableContentionProfiling", "kernelMemcgNotification", "logging.options.json.splitStream",
			"logging.options.text.splitStream", "protectKernelDefaults", "rotateCertificates", "runOnce", "serverTLSBootstrap",
		},
		json.Number("0"): {
			"eventBurst", "evictionMaxPodGracePeriod", "kubeAPIBurst", "maxOpenFiles", "maxPods", "nodeLeaseDurationSeconds",
			"podsPerCore", "port", "readOnlyPort", "registryBurst",
		},
	} {
		for _, field := range fields {
			values[field] = zero
		}
	}

	return values
}()
