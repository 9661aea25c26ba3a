// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestARolloutSurvivesJSON(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	one, tenth := intstr.FromInt32(1), intstr.FromString("10%")
	limit, domains := int32(0), int32(2)
	want := &v1alpha1.NodeConfigRollout{
		TypeMeta:   metav1.TypeMeta{APIVersion: "evenkeel.dev/v1alpha1", Kind: "NodeConfigRollout"},
		ObjectMeta: metav1.ObjectMeta{Name: "workers"},
		Spec: v1alpha1.NodeConfigRolloutSpec{
			NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{"pool": "workers"}}},
			Priority:      -1,
			Template:      v1alpha1.RolloutTemplate{Kubelet: &runtime.RawExtension{Raw: []byte(`{"maxPods":1,"nothing":null}`)}},
			NewNodes:      v1alpha1.NewNodesTarget,
			Strategy: v1alpha1.RolloutStrategy{
				MaxUnavailable: &tenth, TopologyKey: "zone", MaxUnavailablePerDomain: &one, MaxDomainsInFlight: &domains,
				Steps: []v1alpha1.RolloutStep{
					{Nodes: &one},
					{Pause: &v1alpha1.RolloutPause{Duration: &metav1.Duration{Duration: 90 * time.Minute}}},
					{Nodes: &tenth},
					{Pause: &v1alpha1.RolloutPause{}},
				},
				CanarySelector: map[string]string{"canary": "true"},
			},
			SoakSeconds: 1, NodeTimeoutSeconds: 10, ProgressDeadlineSeconds: 10,
			FailurePolicy:        v1alpha1.FailurePolicy{MaxFailures: &tenth, Action: v1alpha1.FailureActionRollback},
			Rollback:             v1alpha1.RollbackStrategy{MaxUnavailable: &one},
			RevisionHistoryLimit: &limit,
			Approval:             &v1alpha1.RolloutApproval{Revision: 4},
			Abort:                &v1alpha1.RolloutAbort{Revision: 4, Rollback: true},
			Retry:                &v1alpha1.RolloutRetry{Revision: 4, Attempt: 2, Nodes: []string{"worker-1"}},
		},
	}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	got, _, err := decoder.Decode(data, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(runtime.Object(want), got); diff != "" {
		t.Errorf("after a round trip (- want, + got)\n%s", diff)
	}
}

func TestWhatIsZeroAndMeansSomethingIsWritten(t *testing.T) {
	limit := int32(0)
	data, err := json.Marshal(v1alpha1.NodeConfigRolloutSpec{
		RevisionHistoryLimit: &limit,
		Approval:             &v1alpha1.RolloutApproval{Revision: 4},
		Strategy:             v1alpha1.RolloutStrategy{Steps: []v1alpha1.RolloutStep{{Pause: &v1alpha1.RolloutPause{}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"revisionHistoryLimit":0`, `"approval":{"revision":4,"step":0}`, `"steps":[{"pause":{}}]`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("got %s, want in it %s", data, want)
		}
	}
}
