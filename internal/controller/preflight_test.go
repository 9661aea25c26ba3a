// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// answerPreflights plays agents that answer preflight requests until the test
// ends, with a verdict, a reason and a message for each node. It counts the
// answers.
func answerPreflights(t *testing.T, verdicts map[string][3]string) *atomic.Int64 {
	t.Helper()
	answers := &atomic.Int64{}
	forConfigs(t, slices.Collect(maps.Keys(verdicts)), func(ctx context.Context, nc *v1alpha1.NodeConfig) error {
		text := nc.Annotations[v1alpha1.AnnotationPreflight]
		if text == "" {
			return nil
		}

		var request v1alpha1.PreflightRequest
		if err := json.Unmarshal([]byte(text), &request); err != nil {
			return err
		}

		if nc.Status.Preflight != nil && nc.Status.Preflight.UID == request.UID {
			return nil
		}

		said := verdicts[nc.Name]
		answers.Add(1)
		data, err := json.Marshal([]operation{
			{"test", "/metadata/resourceVersion", nc.ResourceVersion},
			{"add", "/status/preflight", v1alpha1.PreflightAnswer{
				UID: request.UID, Verdict: v1alpha1.PreflightVerdict(said[0]), Reason: said[1], Message: said[2],
			}},
		})
		if err != nil {
			return err
		}

		err = admin.Status().Patch(ctx, nc, client.RawPatch(types.JSONPatchType, data))
		if apierrors.IsInvalid(err) || apierrors.IsConflict(err) { // it has changed
			return nil
		}

		return err
	})

	return answers
}

// reported creates NodeConfigs of nodes that agents have written to.
func reported(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		assert.NoError(t, admin.Create(t.Context(), nc))
		assert.NoError(t, answer(t.Context(), nc, false))
	}
}

func TestARequiredPreflightStopsARevisionBeforeAnyNodeIsAssignedIt(t *testing.T) {
	world(t)
	addNodes(t, "pool=asked", "q1", "q2", "q3")
	reported(t, "q1", "q2", "q3")
	answers := answerPreflights(t, map[string][3]string{ // the agent of q3 is silent
		"q1": {"Accepted"}, "q2": {"Refused", v1alpha1.ReasonValidationFailed, "maxPods is wrong"},
	})
	const timeout = 40 * time.Second // less than the default
	c := start(t, own(), func(o *Options) { o.AgentTimeout = timeout })
	roll(t, "asked", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Strategy.Preflight = v1alpha1.PreflightRequire })
	awaitRollout(t, "asked", func(st status) error {
		p := st.Preflight
		return assert.Unless(p != nil && p.Accepted+p.Refused == 2, "status.preflight is %+v", p)
	})
	later(c, 2*timeout)
	r := awaitRollout(t, "asked", phase(v1alpha1.RolloutHalted))
	p := r.Status.Preflight
	assert.Must(t, p != nil && p.EndTime != nil && r.Status.Target() == 1 && p.Accepted == 1 && p.Refused == 1 && p.Unanswered == 1,
		"status.preflight is %+v", p)
	want := v1alpha1.PreflightGroup{Verdict: "Refused", Reason: "ValidationFailed", Message: "maxPods is wrong", Nodes: 1, Examples: []string{"q2"}}
	assert.That(t, len(p.Groups) == 1 && fmt.Sprint(p.Groups[0]) == fmt.Sprint(want) && slices.Equal(p.UnansweredNodes, []string{"q3"}),
		"the groups are %+v, silent are %v", p.Groups, p.UnansweredNodes)
	h := r.Status.Halt
	assert.That(t, h.Reason == v1alpha1.HaltPreflightRefused && strings.Contains(h.Message, "1 ValidationFailed (q2)"), "halt is %+v", h)
	for _, name := range []string{"q1", "q2", "q3"} {
		nc := nodeConfig(t, name)
		assert.That(t, nc.Spec.ConfigSource == nil && nc.Generation == 1, "%s was changed: generation %d, %+v", name, nc.Generation, nc.Spec)
	}

	assert.Equal(t, answers.Load(), 2, "answers")
	assert.Equal(t, series(t, c.registry, `evenkeel_controller_writes_total{object="preflight",result="ok"}`), " 3\n", "written requests")
	assert.Equal(t, series(t, c.registry, `evenkeel_rollout_preflight_nodes{answer="refused",rollout="asked"}`), " 1\n", "refused")
	eventually(t, func() error {
		return told(t, "asked", "1 node accepts, 1 refused: 1 ValidationFailed (q2), 1 without an answer")
	})
}

// Besides, one that was edited is invalid.
func TestNodeConfigPreflightsAreAskedInTurnAndExpire(t *testing.T) {
	world(t)
	t.Cleanup(func() { assert.OK(t, admin.DeleteAllOf(context.Background(), &v1alpha1.NodeConfigPreflight{})) })
	addNodes(t, "pool=turn", "p1", "p2")
	reported(t, "p1", "p2")
	answerPreflights(t, map[string][3]string{"p1": {"Accepted"}, "p2": {"Refused", v1alpha1.ReasonNeedsDrain, "cpu_manager_state"}})
	make := func(name string, pods int, ttl *int32) *v1alpha1.NodeConfigPreflight {
		o := &v1alpha1.NodeConfigPreflight{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeConfigPreflightSpec{
			NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{"pool": "turn"}}},
			Template:      v1alpha1.PreflightTemplate{KubeletDropIn: template(pods).KubeletDropIn}, TTLSecondsAfterFinished: ttl,
		}}
		assert.NoError(t, admin.Create(t.Context(), o))

		return o
	}
	edited := make("edited", 70, nil)
	edited.Spec.Template.KubeletDropIn = template(71).KubeletDropIn
	assert.NoError(t, admin.Update(t.Context(), edited))
	start(t, own())
	make("one", 50, nil)
	make("two", 60, new(int32(5)))
	result := func(name string) (*v1alpha1.NodeConfigPreflight, error) {
		o := &v1alpha1.NodeConfigPreflight{}
		if err := admin.Get(t.Context(), types.NamespacedName{Name: name}, o); err != nil {
			return nil, err
		}
		if o.Status.Phase != v1alpha1.PreflightComplete {
			return nil, fmt.Errorf("%s is %s: %s", name, o.Status.Phase, o.Status.Message)
		}

		return o, nil
	}
	for _, name := range []string{"one", "two"} {
		eventually(t, func() error {
			o, err := result(name)
			if err != nil {
				return err
			}
			if r := o.Status.Result; r.Accepted != 1 || r.Blocked != 1 || len(r.Groups) != 1 || r.Groups[0].Reason != v1alpha1.ReasonNeedsDrain {
				return fmt.Errorf("the result is %+v", r)
			}

			cm := &corev1.ConfigMap{}
			ref := o.Status.ConfigMapRef
			if err := admin.Get(t.Context(), types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, cm); err != nil {
				return err
			}
			if !fleet.Immutable(cm) || fleet.PayloadDigest(cm) != ref.SHA256 || len(cm.OwnerReferences) != 1 || cm.OwnerReferences[0].UID != o.UID {
				return fmt.Errorf("the ConfigMap is %+v", cm)
			}

			return nil
		})
	}

	eventually(t, func() error {
		_, err := result("two")
		return assert.Unless(apierrors.IsNotFound(err), "it does not expire: %w", err)
	})
	assert.OK(t, assert.Err(result("one")), "the other one is kept for an hour")
	eventually(t, func() error {
		return says(assert.Err(result("edited")), "Invalid", "the spec was changed after the preflight was created")
	})
	for _, name := range []string{"p1", "p2"} {
		nc := nodeConfig(t, name)
		assert.That(t, nc.Generation == 1 && nc.Spec.ConfigSource == nil, "%s was assigned something: %+v", name, nc.Spec)
	}
}

func TestRolloutsWorkWithoutTheCRDOfPreflights(t *testing.T) {
	world(t)
	crd := object("apiextensions.k8s.io", "CustomResourceDefinition", "nodeconfigpreflights.evenkeel.dev")
	assert.NoError(t, admin.Delete(t.Context(), crd))
	t.Cleanup(func() { assert.OK(t, cluster.Apply(context.Background(), "../../config/api")) })
	addNodes(t, "pool=without", "w1")
	agents(t, nil, "w1")
	c := start(t, own())
	roll(t, "without")
	awaitRollout(t, "without", completeAt(1))
	assert.OK(t, c.ready(), "the controller is not ready")
}
