// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Comparison is the output of `kubectl evenkeel config diff`.
type Comparison struct {
	A           query.Side   `json:"a"`
	B           query.Side   `json:"b"`
	Differences []Difference `json:"differences"`
	// NotCompared counts fields that only the side with the larger extent sets.
	NotCompared int `json:"notCompared,omitempty"`
}

// Compare fills in the differences.
func (d *Comparison) Compare(form string) {
	d.Differences = []Difference{}
	for _, c := range kubeletChanges(d.A.Fields, d.B.Fields) {
		if d.A.Extent < d.B.Extent && c.A == payload.Unset || d.B.Extent < d.A.Extent && c.B == payload.Unset {
			d.NotCompared++
			continue
		}

		if form == "grouped" {
			c.Field = payload.GroupedPath(c.Field)
		}

		d.Differences = append(d.Differences, c)
	}

	if d.A.Extent != query.Effective && d.B.Extent != query.Effective {
		d.Differences = append(d.Differences, trialChanges(d.A.Trial, d.B.Trial)...)
	}
}

// Difference is a field with different values in two configurations.
type Difference struct {
	Field string `json:"field"`
	A     string `json:"a"` // JSON, "unset" or "masked"
	B     string `json:"b"`
	// Effect says what a changed field of a kubelet's configuration acts on, if
	// a restart is not enough.
	Effect string `json:"effect,omitempty"`
}

func (c Difference) String() string {
	line := fmt.Sprintf("%s: %s -> %s", c.Field, c.A, c.B)
	if c.Effect != "" {
		line += " (" + c.Effect + ")"
	}

	return line
}

// Changes returns the fields that differ, by path. Secret values are masked.
func Changes(a, b map[string]any) []Difference {
	var out []Difference
	for _, d := range payload.Diff(fieldsOf(a), fieldsOf(b)) {
		out = append(out, Difference{Field: d.Field, A: d.Value, B: d.Local})
	}

	return out
}

// kubeletChanges is Changes for a kubelet's configurations, with the effects.
func kubeletChanges(a, b map[string]any) []Difference {
	out := Changes(a, b)
	for i := range out {
		out[i].Effect = payload.Effect(out[i].Field)
	}

	return out
}

// fieldsOf returns the fields of a configuration without apiVersion and kind.
func fieldsOf(fields map[string]any) map[string]any {
	fields = maps.Clone(payload.Canonical(fields))
	delete(fields, "apiVersion")
	delete(fields, "kind")
	return fields
}

// trialFields returns the trial settings of a payload as fields.
func trialFields(t v1alpha1.TrialTerms) map[string]any {
	fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&t) // cannot fail: all fields have JSON
	return fields
}

// trialChanges returns the trial settings that differ between two payloads.
func trialChanges(a, b v1alpha1.TrialTerms) []Difference {
	out := Changes(trialFields(a), trialFields(b))
	for i := range out {
		out[i].Field = "trial." + out[i].Field
	}

	return out
}

// LocalOfEach is the configuration that a zero payload means on several nodes.
const LocalOfEach = "the local configuration of each node"

// ContentDiff returns the changes on nodes, one line for each field; empty if
// there are none. A zero payload means local.
func ContentDiff(before, after payload.Payload, local string) string {
	kinds, changes := ContentChanges(before, after, local)
	var b strings.Builder
	if kinds != "" {
		fmt.Fprintln(&b, kinds)
	}

	var defaults []string
	for _, c := range changes {
		if c.A == payload.Unset && (c.B == `"0s"` || c.B == `""`) { // a printed configuration is full of them
			defaults = append(defaults, c.Field)
			continue
		}

		fmt.Fprintln(&b, c)
	}

	if len(defaults) > 0 {
		fmt.Fprintf(&b, "%s set to \"0s\" or \"\", which means the default: %s\n", printable.Count(len(defaults), "field"),
			printable.Few(defaults))
	}

	return b.String()
}

// ContentChanges returns the fields that differ on nodes. kinds says how a
// drop-in and a whole configuration or the local one differ; it is empty if
// both are of one kind. A zero payload means local.
func ContentChanges(before, after payload.Payload, local string) (kinds string, changes []Difference) {
	if before.Key != after.Key {
		kinds = contentKind(before, local) + " -> " + contentKind(after, local)
	}

	return kinds, append(kubeletChanges(before.Fields, after.Fields), trialChanges(before.Trial, after.Trial)...)
}

func contentKind(c payload.Payload, local string) string {
	switch c.Key {
	case "":
		return local
	case payload.KeyKubeletDropin:
		return "a drop-in, merged over " + local
	}

	return "a whole configuration"
}
