// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// preflightOf returns what a NodeConfig says about preflight requests. Nodes
// cannot write the annotation.
func preflightOf(nc *v1alpha1.NodeConfig) rollout.Preflight {
	st := &nc.Status
	var out rollout.Preflight
	var request v1alpha1.PreflightRequest
	if text := nc.Annotations[v1alpha1.AnnotationPreflight]; text != "" && json.Unmarshal([]byte(text), &request) == nil {
		out.Asked, out.AskedAt = request.UID, request.Time.Time
	}
	if a := st.Preflight; a != nil {
		out.Answered, out.Verdict, out.Reason, out.Message = a.UID, a.Verdict, a.Reason, a.Message
	}

	return out
}

// PreflightRequestText returns a preflight request as the annotation stores it.
func PreflightRequestText(uid string, ref v1alpha1.ConfigMapReference, attempt int64, trial *v1alpha1.TrialTerms, now time.Time) (string,
	error) {
	text, err := json.Marshal(v1alpha1.PreflightRequest{
		UID: uid, ConfigMapRef: ref, Trial: trial, Attempt: attempt, Time: metav1.NewTime(now.UTC()),
	})
	if err != nil {
		return "", fmt.Errorf("encode a preflight request: %w", err)
	}

	return string(text), nil
}

// PreflightTemplate is the configuration of a NodeConfigPreflight, and the
// nodes that it selects. If Err is not nil, one of them is invalid.
type PreflightTemplate struct {
	Content payload.Payload
	Nodes   labels.Selector
	Err     error
}

// PreflightTemplateOf returns the configuration of a NodeConfigPreflight, and
// the nodes that it selects.
func PreflightTemplateOf(o *v1alpha1.NodeConfigPreflight) (t PreflightTemplate) {
	if o.Generation > 1 {
		t.Err = fmt.Errorf("the spec was changed after the preflight was created: create another one")
		return t
	}

	s := &o.Spec
	if t.Nodes, _, t.Err = selectors(&v1alpha1.NodeConfigRolloutSpec{NodeSelection: s.NodeSelection}); t.Err != nil {
		return t
	}

	if t.Content, t.Err = ContentOf(v1alpha1.RolloutTemplate{Kubelet: s.Template.Kubelet, KubeletDropIn: s.Template.KubeletDropIn},
		nil); t.Err != nil {
		return t
	}

	_, t.Err = payload.ResolveTrial(t.Content.Trial, s.Trial)

	return t
}
