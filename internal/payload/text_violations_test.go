package payload

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTextViolations(t *testing.T) {
	const local = `{"readOnlyPort": 0, "maxPods": 110, "allowedUnsafeSysctls": [], "authentication": {"anonymous": {"enabled": false}, "x509": {"clientCAFile": "/ca"}}}`
	for _, tt := range []struct {
		name, candidate string
		dropin          bool
		want            string
	}{
		{"a whole one that writes the same", local, false, "[]"},
		{"a whole one that changes a free field", `{"readOnlyPort": 0, "maxPods": 5, "allowedUnsafeSysctls": [], "authentication": {"anonymous": {"enabled": false}, "x509": {"clientCAFile": "/ca"}}}`, false, "[]"},
		{"a whole one that leaves protected fields out", `{"maxPods": 110}`, false,
			`[allowedUnsafeSysctls would be unset, but is [] locally authentication.anonymous.enabled would be unset, but is false locally authentication.x509.clientCAFile would be unset, but is "/ca" locally readOnlyPort would be unset, but is 0 locally]`},
		{"a drop-in that sets none", `{"maxPods": 5}`, true, "[]"},
		{"a drop-in that sets one as it is", `{"readOnlyPort": 0.0, "allowedUnsafeSysctls": []}`, true, "[]"},
		{"a drop-in that sets one to another value", `{"readOnlyPort": 10255}`, true, "[readOnlyPort would be 10255, but is 0 locally]"},
		{"a drop-in that sets one that is not set locally", `{"staticPodPath": "/x"}`, true, `[staticPodPath would be "/x", but is unset locally]`},
		{"null on a protected field", `{"readOnlyPort": null}`, true, "[readOnlyPort would be null, but is 0 locally]"},
		{"null above a protected field", `{"authentication": null}`, true, "[authentication would be null, but is a mapping locally]"},
		{"null on a field that is null locally too", `{"readOnlyPort": null}`, false, ""},
		{"an empty mapping over fields", `{"authentication": {"x509": {}}}`, true, "[]"},
		{"an empty mapping over nothing", `{"tracing": {}}`, true, "[tracing would be {}, but is unset locally]"},
		{"a mapping where a value is", `{"readOnlyPort": {"a": 1}}`, true, `[readOnlyPort.a would be 1, but is unset locally]`},
		{"a value where a mapping is", `{"authentication": 1}`, true, "[authentication would be 1, but is a mapping locally]"},
		{"an unknown field", `{"brandNew": 1}`, true, "[brandNew would be 1, but is unset locally]"},
		{"a protected gate", `{"featureGates": {"AllAlpha": true, "Free": true}}`, true, "[featureGates.AllAlpha would be true, but is unset locally]"},
		{"a value within the limit of its field", `{"logging": {"verbosity": 7}}`, true, "[]"},
		{"a value beyond it", `{"logging": {"verbosity": 8}}`, true, "[logging.verbosity would be 8, but is unset locally (free up to 7 or the local value)]"},
		{"a value without a known local limit", `{"podPidsLimit": 100}`, true, "[podPidsLimit would be 100, but is unset locally (free up to the local value; -1 and 0 are no limit)]"},
		{"the kind and version", `{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}`, true, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fields := func(text string) map[string]any {
				m := assert.Value(DecodeMapping([]byte(text)))(t)
				return m
			}
			under := fields(local)
			if tt.want == "" {
				under, tt.want = fields(tt.candidate), "[readOnlyPort would be null, but is unset locally]"
			}
			assert.Equal(t, fmt.Sprint(DefaultProtection().TextViolations(fields(tt.candidate), under, tt.dropin)), tt.want)
		})
	}
}

// If the texts are equal, the configurations must be equal after a kubelet merged them. Additional differences in the
// text are allowed.
func TestTextViolationsMissNoDifference(t *testing.T) {
	p := DefaultProtection()
	rapid.Check(t, func(t *rapid.T) {
		local, candidate := anyFields(names).Draw(t, "local"), anyFields(names).Draw(t, "candidate")
		if len(p.TextViolations(candidate, local, false)) == 0 {
			found := p.Violations(candidate, local, nil)
			assert.Must(t, len(found) == 0, "whole: %v", found)
		}
		merged := overlay(local, candidate)
		if len(p.TextViolations(candidate, local, true)) == 0 {
			found := p.Violations(merged, local, nil)
			assert.Must(t, len(found) == 0, "drop-in: %v", found)
		}
	})
}

// overlay merges like a kubelet merges a drop-in: mappings key by key, null removes, other values are replaced.
func overlay(under, over map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range under {
		out[k] = v
	}
	for k, v := range over {
		inner, isMap := v.(map[string]any)
		below, _ := out[k].(map[string]any)
		switch {
		case v == nil:
			delete(out, k)
		case isMap:
			out[k] = overlay(below, inner)
		default:
			out[k] = v
		}
	}
	return out
}

func TestDeeplyNestedTextIsRejectedBeforeItIsDecoded(t *testing.T) {
	nest := func(open, close string, n int) string {
		text := ""
		for range n {
			text += open
		}
		text += "1"
		for range n {
			text += close
		}
		return text
	}
	for _, tt := range []struct{ name, text string }{
		{"JSON", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","a":` + nest(`{"a":`, `}`, 9000) + `}`},
		{"lists", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","a":` + nest(`[`, `]`, 9000) + `}`},
		{"flow style YAML", "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\na: " + nest(`{a: `, `}`, 5000)},
		{"block style YAML", "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\na:\n  " + nest(`- `, ``, 5000)},
		{"as deep as the limit, and one more", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","a":` + nest(`[`, `]`, maxDepth) + `}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Decode(KeyKubelet, []byte(tt.text))
			refused, ok := err.(*Error)
			assert.That(t, ok && refused.Problem == ProblemTooDeep && refused.Message == "nested more than 50 levels deep", "got %v", err)
		})
	}
	if _, err := Decode(KeyKubelet, []byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","a":`+nest(`[`, `]`, maxDepth-1)+`}`)); err != nil {
		t.Errorf("what is as deep as the limit: %v", err)
	}
}

func TestAGroupedPayloadThatIsTooLargeInTheUpstreamFormIsRejected(t *testing.T) {
	text := []byte("apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\nstaticPods: {staticPodURL: '")
	for range MaxSize/2 - len(text) { // each takes six bytes in JSON
		text = append(text, '<')
	}
	_, err := Decode(KeyKubelet, append(text, "'}\n"...))
	refused, ok := err.(*Error)
	assert.That(t, ok && refused.Problem == ProblemTooLarge, "got %.200v", err)
}
