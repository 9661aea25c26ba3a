// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestParseFault(t *testing.T) {
	for text, want := range map[string]Fault{
		"silent":                               {Kind: Silent},
		"crashloop,share=10%":                  {Kind: CrashLoop, Share: 0.1},
		"reject,payload=maxPods: 7":            {Kind: Reject, Payload: "maxPods: 7"},
		`reject,payload=a\,b`:                  {Kind: Reject, Payload: "a,b"},
		"slow=1m,node=a,node=b":                {Kind: Slow, Delay: time.Minute, Nodes: []string{"a", "b"}},
		"unhealthy,field=logging.verbosity: 4": {Kind: Unhealthy, Field: "logging.verbosity", Value: "4"},
	} {
		got, err := ParseFault(text)
		assert.That(t, err == nil && reflect.DeepEqual(got, want), "%s: got %+v, %v", text, got, err)
	}
}

func TestInvalidFaultsAreExplained(t *testing.T) {
	for text, want := range map[string]string{
		"":                         `unknown kind "": use reject,`,
		"lazy":                     `unknown kind "lazy"`,
		"slow":                     "slow needs a duration: slow=5s",
		"slow=soon":                "only slow has a value, which is a duration",
		"slow=-5s":                 "slow needs a duration",
		"reject=5s":                "only slow has a value, which is a duration",
		"reject,share=10":          "share must be a percentage",
		"reject,share=0%":          "share must be a percentage",
		"reject,share=NaN%":        "share must be a percentage",
		"reject,share=1%,node=a":   "either a share of the nodes or names",
		"reject,zone=a":            `unknown key "zone"`,
		"reject,payload":           `"payload" is not key=value`,
		"reject,node=":             `"node=" is not key=value`,
		"reject,field=maxPods":     "field must be PATH:VALUE",
		"silent,payload=maxPods":   "silent cannot be limited to payloads",
		"silent,field=maxPods:110": "silent cannot be limited to payloads",
	} {
		assert.ErrorHas(t, assert.Err(ParseFault(text)), fmt.Sprintf("fault %q: ", text))
		assert.ErrorHas(t, assert.Err(ParseFault(text)), want, text)
	}
}

func TestALargerShareIncludesTheNodesOfASmallerOne(t *testing.T) {
	tenth, third := Fault{Kind: CrashLoop, Share: .1}, Fault{Kind: CrashLoop, Share: .3}
	n, m, alike := 0, 0, 0
	for i := range 5000 {
		name := fmt.Sprint("hollow-", i)
		if tenth.matchesNode(name) {
			n++
			assert.That(t, third.matchesNode(name), "%s is in a tenth and not in a third", name)
			if (Fault{Kind: Reject, Share: .1}).matchesNode(name) {
				alike++
			}
		}

		if third.matchesNode(name) {
			m++
		}
	}

	assert.That(t, n >= 400 && n <= 600 && m >= 1350 && m <= 1650 && alike <= 100, "%d and %d of 5000, %d by another fault too", n, m, alike)
}

func TestAFaultOccursOnlyWithMatchingPayloads(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	p := assert.Value(payload.Decode("kubelet", []byte(head+"maxPods: 7\nlogging: {verbosity: 4}\n")))(t)
	for _, tt := range []struct {
		f              Fault
		payload, local bool
	}{
		{Fault{Kind: Reject}, true, false},
		{Fault{Kind: Slow}, true, true},
		{Fault{Kind: Slow, Field: "maxPods", Value: "7"}, true, false},
		{Fault{Kind: Reject, Payload: "maxPods: 7"}, true, false},
		{Fault{Kind: Reject, Payload: "maxPods: 8"}, false, false},
		{Fault{Kind: Reject, Field: "logging.verbosity", Value: "4"}, true, false},
		{Fault{Kind: Reject, Field: "logging.verbosity.deep", Value: "4"}, false, false},
		{Fault{Kind: Reject, Field: "podPidsLimit", Value: "4"}, false, false},
		{Fault{Kind: Reject, Field: "maxPods", Value: "8"}, false, false},
	} {
		assert.Equal(t, tt.f.matchesPayload(&p), tt.payload, tt.f, "meets the payload")
		assert.Equal(t, tt.f.matchesPayload(nil), tt.local, tt.f, "meets the local configuration")
	}
}

func TestAPayloadIsMergedOverTheDefaults(t *testing.T) {
	e := assert.Value(Effective(map[string]any{"kind": "KubeletConfiguration", "MaxPods": int64(7), "authentication": map[string]any{"anonymous": map[string]any{"enabled": true}}}))(t)
	_, kind := e["kind"]
	assert.That(t, !kind, "its kind is taken for a field")
	for field, want := range map[string]string{"maxPods": "7", "authentication.anonymous.enabled": "true", "authentication.webhook.enabled": "true"} {
		value, _ := e.Field(field)
		assert.Equal(t, fmt.Sprint(value), want, field)
	}

	assert.Equal(t, fmt.Sprint(Defaults["maxPods"]), "110", "the default")
	assert.ErrorHas(t, assert.Err(Effective(map[string]any{"x": func() {}})), "encode the payload")
}
