// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// annotationValues holds, in a checkpoint only, the values of the payload's
// rules. In an object of the API it has no meaning.
const annotationValues = "evenkeel.dev/resolved-values"

// resolution is what the rules of a revision gave on this machine. It is kept
// while the agent runs and the assignment stays, so that a machine that grows
// is noticed at the next start of the agent.
type resolution struct {
	source   string // the revision that the source knows
	revision string // the same with the values
	payload.Resolved
	err error // a *payload.Error
}

// of returns the values that belong to a revision.
func (r resolution) of(revision string) []v1alpha1.ResolvedValue {
	if r.revision != revision {
		return nil
	}

	return r.Values
}

// resolve completes an answer whose payload has rules: each set of values is a
// configuration of its own. Without an answer current keeps the values that
// were saved with it: the pod guard needs the API server for a change anyway.
func (a *Agent) resolve(answer source.Answer) source.Answer {
	if answer.Kind != trial.Assigned || answer.PayloadErr != nil || !answer.Payload.HasRules() {
		return answer
	}

	v := &a.assignment.values
	if from := answer.Config.Revision; v.source != from || v.SHA256 != answer.Payload.SHA256 {
		v.source = from
		v.Resolved, v.err = answer.Payload.Resolve(a.p.Kubelet.Capacity())
		v.Payload = answer.Payload
	}

	if payload.NeedsCapacity(v.err) {
		v.source = "" // to be measured again
		return source.Answer{Intent: trial.Intent{Kind: trial.Unanswered, Cause: v.err.Error()}, Generation: answer.Generation,
			NodeConfigUID: answer.NodeConfigUID, Revoked: answer.Revoked}
	}

	if answer.PayloadErr = v.err; v.err != nil {
		return answer
	}

	answer.Config = answer.Config.WithValues(v.Digest)
	v.revision = answer.Config.Revision
	if answer.ConfigMap == nil && a.p.SavedConfigs.get(answer.Config.Revision).Checkpoint == "" {
		answer.ConfigMap, _ = a.p.SavedConfigs.Checkpoint(v.source) // of the same payload, with other values
	}

	return answer
}

// withValues returns a serialized ConfigMap with values; without any, as it is.
func withValues(configMap []byte, values []v1alpha1.ResolvedValue) ([]byte, error) {
	if len(values) == 0 {
		return configMap, nil
	}

	var cm corev1.ConfigMap
	if err := json.Unmarshal(configMap, &cm); err != nil {
		return nil, err
	}

	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}

	metav1.SetMetaDataAnnotation(&cm.ObjectMeta, annotationValues, string(text))

	return json.Marshal(cm)
}

// decodeCheckpoint returns the payload of a checkpoint, and the values of its
// rules that were saved with it.
func decodeCheckpoint(raw []byte) (p payload.Payload, values []v1alpha1.ResolvedValue, err error) {
	var cm corev1.ConfigMap
	if err := json.Unmarshal(raw, &cm); err != nil {
		return p, nil, err
	}
	if p, err = payload.FromConfigMap(&cm); err != nil || !p.HasRules() {
		return p, nil, err
	}
	if err := json.Unmarshal([]byte(cm.Annotations[annotationValues]), &values); err != nil {
		return p, nil, fmt.Errorf("the values of its rules: %w", err)
	}

	return p, values, nil
}
