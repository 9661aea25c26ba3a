package component

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// TextComparison compares the files of a candidate with those of the local configuration, for a kubelet that does not
// print its effective configuration. It can report too much: a default that only one of them contains is a difference.
type TextComparison struct {
	// Violations are the protected fields whose values in the files differ.
	Violations []payload.Difference
	// NotComparable says why they cannot be compared, or is "".
	NotComparable string
}

// compareText compares the protected fields of the candidate's files with those of the local configuration.
func (c *check) compareText() *TextComparison {
	local, err := c.local.layers()
	switch {
	case err != nil:
		return &TextComparison{NotComparable: oneLine(err.Error())}
	case !c.h.k.hasFile(c.local):
		return &TextComparison{NotComparable: noLocalFile}
	}
	candidate, err := c.candidate.payload()
	if err != nil {
		return &TextComparison{NotComparable: err.Error()}
	}
	return &TextComparison{Violations: c.h.Protected.TextViolations(
		payload.Canonical(candidate.fields), merged(local), c.candidate.run.Dropin)}
}

const noLocalFile = "this node has no local configuration file"

// hasFile reports whether the configuration has a file, and not only flags and drop-ins: without a file the kubelet
// has other defaults.
func (k *Kubelet) hasFile(config configuration) bool {
	file, _ := k.sources(config.run)
	return file != ""
}

// merged merges layers like the kubelet.
func merged(layers []layer) map[string]any {
	fields := map[string]any{}
	for _, l := range layers {
		over := l.fields
		if l.anyCase {
			over = payload.Canonical(over)
		}
		fields = payload.Merge(fields, over)
	}
	return fields
}

// agentFields are the configuration fields that the agent uses, with the kubelet's flag and default; nil where the
// agent must not assume a default.
var agentFields = []struct {
	path, flag string
	standard   any
}{
	{"containerRuntimeEndpoint", runtimeFlag, "unix:///run/containerd/containerd.sock"},
	{"cpuManagerPolicy", "cpu-manager-policy", "none"},
	{"healthzBindAddress", "healthz-bind-address", defaultHealthzAddress},
	{"healthzPort", "healthz-port", json.Number(fmt.Sprint(defaultHealthzPort))},
	{"maxPods", "max-pods", nil},
	{"memoryManagerPolicy", "memory-manager-policy", "None"},
	{"podsPerCore", "pods-per-core", nil},
	{"staticPodPath", "pod-manifest-path", ""},
}

// readFiles sets the values of the agent's fields according to the files of a configuration.
func (k *Kubelet) readFiles(v *Verdict, config configuration) {
	layers, err := config.layers()
	if err != nil {
		return // addOrigins reports it
	}
	v.Written, v.Assumed = Effective{}, Effective{}
	for _, path := range podFields {
		if value, _ := lookupLayers(layers, splitPath(path)); value != nil {
			v.Written[path] = value
		}
	}
	for _, f := range agentFields {
		value, _ := lookupLayers(layers, splitPath(f.path))
		if value != nil {
			v.Written[f.path] = value
		} else {
			value = f.standard
		}
		if flag, given := last(k.flags, f.flag); given {
			value = flag
			if _, isNumber := f.standard.(json.Number); isNumber || f.standard == nil {
				value = json.Number(flag)
			}
		}
		if value != nil {
			v.Assumed[f.path] = value
		}
	}
}

// podFields are the configuration fields on which it depends whether the pods of the node survive a restart.
var podFields = []string{
	"allowedUnsafeSysctls", "cgroupDriver", "cgroupRoot", "cgroupsPerQOS", "cpuManagerPolicy", "cpuManagerPolicyOptions", "enforceNodeAllocatable",
	"evictionHard", "evictionSoft", "featureGates", "kubeReserved", "localStorageCapacityIsolation", "maxPods", "memoryManagerPolicy",
	"mergeDefaultEvictionSettings", "podsPerCore", "reservedMemory", "reservedSystemCPUs", "systemReserved", "topologyManagerPolicy",
	"topologyManagerPolicyOptions", "topologyManagerScope", "userNamespaces",
}

// ChangedPodFields returns the pod-related fields whose values in the files differ between two configurations, so that the
// effective values may differ. If the files of either are unknown, it returns all of them.
func (v Verdict) ChangedPodFields(other Verdict) []string {
	var fields []string
	for _, path := range podFields {
		if v.Written == nil || other.Written == nil || !reflect.DeepEqual(v.Written[path], other.Written[path]) {
			fields = append(fields, path)
		}
	}
	return fields
}

// EffectiveOrAssumed returns Effective or, if that is nil, the few fields that are assumed from files, flags and defaults; nil if
// both are unknown.
func (v Verdict) EffectiveOrAssumed() Effective {
	if v.Effective != nil {
		return v.Effective
	}
	return v.Assumed
}

// CheckProtected returns why protected fields forbid a configuration that the kubelet accepted, or "", and whether they
// could be compared.
func (v Verdict) CheckProtected(p payload.Protection) (message string, compared bool) {
	switch {
	case p.Empty():
		return "", true
	case v.Text != nil && v.Text.NotComparable != "":
		return "the kubelet did not print the effective configuration, and protected fields cannot be compared by text: " +
			v.Text.NotComparable + "; see --protected-fields", false
	case v.Text != nil:
		return violationsMessage(v.Text.Violations, " (compared by text)"), true
	case v.Effective == nil:
		return "the kubelet did not print the effective configuration, so protected fields cannot be compared; see --protected-fields", false
	case v.Local == nil:
		return "the kubelet did not print the effective local configuration, so protected fields cannot be compared; check that the local configuration is valid", false
	}
	return violationsMessage(p.Violations(v.Effective, v.Local, v.Hidden), ""), true
}

// mostViolations limits the protected fields in a message.
const mostViolations = 5

func violationsMessage(violations []payload.Difference, how string) string {
	var parts []string
	for i, violation := range violations {
		if i == mostViolations {
			parts = append(parts, fmt.Sprintf("%d more", len(violations)-i))
			break
		}
		parts = append(parts, "protected field "+violation.String())
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + how
}

// checkRuntimeEndpoint checks the endpoint of a container runtime that differs from the local configuration's, which
// stage 2 does not use. A missing socket is not a rejection, because it may appear later.
func (c *check) checkRuntimeEndpoint(v *Verdict) {
	endpoint, local := RuntimeEndpoint(v.Effective), c.runtime
	if v.Effective == nil {
		endpoint, local = RuntimeEndpoint(v.Assumed), c.assumed
	}
	if endpoint == "" || endpoint == local {
		return
	}
	path, err := socketPath(endpoint)
	if err != nil {
		v.Outcome, v.Message = Rejected, oneLine(err.Error())
		return
	}
	switch info, err := os.Stat(path); {
	case err != nil:
		v.Outcome, v.Message = CouldNotTell, oneLine("containerRuntimeEndpoint: "+err.Error())
	case info.Mode().Type() != os.ModeSocket:
		v.Outcome, v.Message = Rejected, oneLine("containerRuntimeEndpoint: "+path+" is not a socket")
	}
}
