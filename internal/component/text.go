package component

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// TextComparison is a candidate compared with the local configuration by what their files say, for a kubelet that does
// not print what it makes of them. It finds more differences than there are: a default that one of them writes out is a
// difference.
type TextComparison struct {
	// Violations are the protected fields that are not written as they are locally.
	Violations []payload.Difference
	// Impossible says why they cannot be compared; "" if they can.
	Impossible string
}

// compareText compares the protected fields of the candidate with those of the local configuration.
func (c *check) compareText() *TextComparison {
	local, err := c.local.layers()
	switch {
	case err != nil:
		return &TextComparison{Impossible: oneLine(err.Error())}
	case len(local) == 0:
		return &TextComparison{Impossible: "this node has no local configuration file"}
	}
	candidate, err := c.candidate.payload()
	if err != nil {
		return &TextComparison{Impossible: err.Error()}
	}
	return &TextComparison{Violations: c.h.Protected.TextViolations(
		payload.Canonical(candidate.fields), merged(local), c.candidate.run.Dropin)}
}

// merged returns what the layers set, as a kubelet merges them: mappings key by key, everything else is replaced. A field
// that is set to null stays, as null.
func merged(layers []layer) map[string]any {
	fields := map[string]any{}
	for _, l := range layers {
		named := l.fields
		if l.anyCase {
			named = payload.Canonical(named)
		}
		mergeInto(fields, named)
	}
	return fields
}

func mergeInto(fields, patch map[string]any) {
	for name, value := range patch {
		if inner, ok := value.(map[string]any); ok {
			under, _ := fields[name].(map[string]any)
			under = maps.Clone(under)
			if under == nil {
				under = map[string]any{}
			}
			mergeInto(under, inner)
			value = under
		}
		fields[name] = value
	}
}

// readFields are the fields that the agent itself reads from a configuration, with the kubelet's flag for each and its
// default; nil where the agent must not assume one.
var readFields = []struct {
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

// readText sets what the files of a configuration say about the fields that the agent reads.
func (k *Kubelet) readText(v *Verdict, of setup) {
	layers, err := of.layers()
	if err != nil {
		return // explain says it
	}
	v.Written, v.Assumed = Effective{}, Effective{}
	for _, f := range readFields {
		value, _ := topmost(layers, splitPath(f.path))
		if number, ok := value.(float64); ok {
			value = json.Number(fmt.Sprint(number))
		}
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

// Rewritten returns the fields that the agent reads for the sake of pods and that the files of a configuration do not set
// as those of another do: what the kubelet makes of them may differ. All of them, if one of the two is not known.
func (v Verdict) Rewritten(other Verdict) []string {
	var fields []string
	for _, path := range []string{"cpuManagerPolicy", "maxPods", "memoryManagerPolicy", "podsPerCore"} {
		if v.Written == nil || other.Written == nil || !reflect.DeepEqual(v.Written[path], other.Written[path]) {
			fields = append(fields, path)
		}
	}
	return fields
}

// Reads returns what the agent itself reads of a configuration: Effective, or without it what is assumed from the files,
// the flags and the kubelet's defaults, which has a few fields only. nil if neither is known.
func (v Verdict) Reads() Effective {
	if v.Effective != nil {
		return v.Effective
	}
	return v.Assumed
}

// Protects returns why protected fields forbid a configuration that the kubelet accepted, "" if they do not; and whether
// they could be compared.
func (v Verdict) Protects(p payload.Protection) (words string, compared bool) {
	switch {
	case p.Empty():
		return "", true
	case v.Text != nil && v.Text.Impossible != "":
		return "the kubelet did not print what its configuration would be, and protected fields cannot be compared by text: " +
			v.Text.Impossible + "; see --protected-fields", false
	case v.Text != nil:
		return protects(v.Text.Violations, " (compared by text)"), true
	case v.Effective == nil:
		return "the kubelet did not print what its configuration would be, so that protected fields cannot be compared; see --protected-fields", false
	case v.Local == nil:
		return "the kubelet did not print what the local configuration is, so that protected fields cannot be compared; see whether that is valid", false
	}
	return protects(p.Violations(v.Effective, v.Local, v.Hidden), ""), true
}

// mostViolations is how many protected fields a refusal names.
const mostViolations = 5

func protects(violations []payload.Difference, how string) string {
	var words []string
	for i, violation := range violations {
		if i == mostViolations {
			words = append(words, fmt.Sprintf("%d more", len(violations)-i))
			break
		}
		words = append(words, "protected field "+violation.String())
	}
	if len(words) == 0 {
		return ""
	}
	return strings.Join(words, "; ") + how
}

// judgeRuntime returns what is wrong with a container runtime's endpoint that is not the local configuration's: stage 2
// does not dial it. "" if nothing is.
func (c *check) judgeRuntime(effective Effective) string {
	endpoint := RuntimeEndpoint(effective)
	if endpoint == "" || endpoint == c.runtime {
		return ""
	}
	path, err := socketPath(endpoint)
	if err != nil {
		return oneLine(err.Error())
	}
	switch info, err := os.Stat(path); {
	case err != nil:
		return oneLine("containerRuntimeEndpoint: " + err.Error())
	case info.Mode().Type() != os.ModeSocket:
		return oneLine("containerRuntimeEndpoint: " + path + " is not a socket")
	}
	return ""
}

// maxClientCA bounds a client CA file, in bytes. The largest bundles have some hundred kilobytes.
const maxClientCA = 4 << 20

const clientCAField = "authentication.x509.clientCAFile"

// judgeClientCA judges the client CA file that a candidate names before any run: until 1.35 a kubelet opens it in stage 1
// already, whatever it is, and from 1.36 on stage 2 leaves it out. judged is false if it is the local configuration's, or
// can be one.
func (c *check) judgeClientCA() (v Verdict, judged bool) {
	if _, given := last(c.h.k.flags, "client-ca-file"); given {
		return Verdict{}, false // the kubelet opens that one
	}
	local := ""
	if under, err := c.local.layers(); err == nil {
		value, _ := topmost(under, splitPath(clientCAField))
		local, _ = value.(string)
	}
	for _, name := range c.clientCAs() {
		if name == local {
			continue
		}
		fields := func(file string) map[string]any {
			return map[string]any{"authentication": map[string]any{"x509": map[string]any{"clientCAFile": file}}}
		}
		if violations := c.h.Protected.TextViolations(fields(name), fields(local), false); len(violations) > 0 {
			return Verdict{Outcome: Accepted, Text: &TextComparison{Violations: violations}}, true
		}
		if err := canBeClientCA(name); err != nil {
			return Verdict{Outcome: Rejected, Words: oneLine(clientCAField + ": " + err.Error())}, true
		}
	}
	return Verdict{}, false
}

// clientCAs returns the client CA files that the candidate names: of a drop-in in any spelling of the field, because the
// kubelet takes any. There are none in what cannot be decoded: the kubelet refuses it before it opens anything.
func (c *check) clientCAs() []string {
	l, err := c.candidate.payload()
	if err != nil {
		return nil
	}
	var files []string
	for path, value := range payload.Lookup(l.fields, strings.Split(clientCAField, ".")) {
		if file, _ := value.(string); file != "" && (path == clientCAField || c.candidate.run.Dropin) {
			files = append(files, file)
		}
	}
	return files
}

func canBeClientCA(file string) error {
	// The files of /proc and /sys are empty by their size. Some of them block whoever reads them.
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return errors.New(file + " is empty")
	}
	data, err := readBounded(file, maxClientCA)
	if err != nil {
		return err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(data) {
		return errors.New(file + " has no certificate in it")
	}
	return nil
}
