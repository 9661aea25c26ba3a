// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestNodeConfigSurvivesJSON(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	at := metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.Local))
	revision := v1alpha1.ConfigRevision{
		Namespace: "evenkeel-system", Name: "workers", UID: "6d1e", SHA256: "ab",
	}
	rollout := &v1alpha1.RolloutReference{Name: "workers", Revision: 4, Attempt: 1, AssignedAt: at, Previous: &v1alpha1.PreviousSource{
		ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: "evenkeel-system", Name: "workers-1", UID: "5c0d"},
		Rollout:      "workers", Revision: 3, Attempt: 1,
	}}
	want := &v1alpha1.NodeConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: "evenkeel.dev/v1alpha1", Kind: "NodeConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: "worker-1"},
		Spec: v1alpha1.NodeConfigSpec{
			ConfigSource: &v1alpha1.NodeConfigSource{
				ConfigMapRef: &v1alpha1.ConfigMapReference{
					Namespace: "evenkeel-system", Name: "workers", UID: "6d1e", SHA256: "ab",
				},
				RolloutRef: rollout,
			},
			Revoked: []types.UID{"77aa"},
		},
		Status: v1alpha1.NodeConfigStatus{
			ObservedGeneration: 4,
			Assigned:           &revision,
			Active:             &revision,
			LastKnownGood:      &v1alpha1.LastKnownGoodConfig{ConfigRevision: revision, Since: &at},

			Error: "none",
			Trial: &v1alpha1.Trial{
				StartTime: &at, HealthySeconds: 5, DurationSeconds: 600, Restarts: 1, CrashLoopThreshold: 3,
			},
			BadConfigs: []v1alpha1.BadConfig{{
				UID: "77aa", Revision: "77aa", Namespace: "evenkeel-system", Name: "bad", Time: &at, Reason: "crash-looped",
				Provisional: true,
			}},
			OverriddenFields: []string{"maxPods"},
			RemoteConfig:     v1alpha1.RemoteConfigNodeConfig,
			RunMode:          v1alpha1.RunModeHost,
			ComponentVersion: "v1.36.3",
			AgentVersion:     "v0.1.0",
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue,
				Reason: v1alpha1.ReasonAllChecksPassed, LastTransitionTime: at,
			}},
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

func TestLocalSaidExplicitlyIsToldFromNothingSaid(t *testing.T) {
	for _, text := range []string{`{}`, `{"configSource":{"local":{}}}`} {
		var spec v1alpha1.NodeConfigSpec
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
		if said := spec.ConfigSource != nil && spec.ConfigSource.Local != nil; said != (text != `{}`) {
			t.Errorf("%s decodes to %+v", text, spec.ConfigSource)
		}
		if back, err := json.Marshal(spec); err != nil || string(back) != text {
			t.Errorf("%s encodes to %s, error %v", text, back, err)
		}
	}
}
