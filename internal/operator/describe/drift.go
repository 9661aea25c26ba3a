// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// rowDrift says how the running kubelet of a node compares with what its agent started: the condition Drifted, and the details in
// status.drift.
type rowDrift struct {
	RowStatus

	Files       []string `json:"files,omitempty"`       // that were edited since
	Fields      []string `json:"fields,omitempty"`      // of the kubelet's /configz that differ
	NotCompared string   `json:"notCompared,omitempty"` // why /configz was not compared; empty: it was
}

// driftOf returns nil if the agent has not reported a comparison: it is older, or has just started.
func driftOf(st *v1alpha1.NodeConfigStatus) *rowDrift {
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionDrifted)
	if c == nil {
		return nil
	}
	d := &rowDrift{RowStatus: RowStatus{Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: &c.LastTransitionTime}}
	if st.Drift != nil {
		d.Files, d.Fields, d.NotCompared = st.Drift.Files, st.Drift.Fields, st.Drift.NotCompared
	}
	return d
}

// Drifted reports whether something differs. It is false for nil.
func (d *rowDrift) Drifted() bool { return d != nil && d.Status == string(metav1.ConditionTrue) }

// Differs lists what differs, of each kind at most most names. Without details it returns the message of the condition.
func (d *rowDrift) Differs(most int) string {
	var out []string
	say := func(kind string, names []string) {
		if len(names) > 0 {
			out = append(out, kind+" "+printable.First(names, most, ", "))
		}
	}
	say("running:", d.Fields)
	say("file:", d.Files)
	if len(out) == 0 {
		return d.Message
	}
	return strings.Join(out, "; ")
}
