// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestATaintRecordsADrain(t *testing.T) {
	id := DrainID("5f0c1c3e-0000-4000-8000-000000000001")
	drain := rollout.Drain{Rollout: id, Revision: 7, Attempt: 2, Since: time.Unix(1_800_000_000, 0).UTC()}
	handed := drain
	handed.HandedOver = true
	for _, want := range []rollout.Drain{drain, handed} {
		taint := DrainTaint(want)
		assert.That(t, len(taint.Value) <= 63 && !strings.ContainsAny(taint.Value, " :/"), "the value %q is invalid", taint.Value)
		assert.Equal(t, DrainOf(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "other"}, taint}}}), want, "read")
	}

	assert.Equal(t, DrainOf(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "other"}}}}), rollout.Drain{},
		"a Node without the taint")
}

func TestATaintThatCannotBeReadIsOfNoRollout(t *testing.T) {
	good := DrainTaint(rollout.Drain{Rollout: DrainID("u"), Revision: 1, Attempt: 1, Since: time.Unix(1, 0)})
	evicts := good
	evicts.Effect = corev1.TaintEffectNoExecute
	for name, taint := range map[string]corev1.Taint{
		"no value": {Key: v1alpha1.TaintDraining, Effect: good.Effect}, "another effect": evicts,
		"no number": {Key: v1alpha1.TaintDraining, Effect: good.Effect, Value: strings.Replace(good.Value, "1.", "x.", 1)},
		"too much":  {Key: v1alpha1.TaintDraining, Effect: good.Effect, Value: good.Value + ".x"},
		"short ID":  {Key: v1alpha1.TaintDraining, Effect: good.Effect, Value: good.Value[:len(good.Value)-1]},
	} {
		got := DrainOf(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint}}})
		assert.That(t, got.Rollout != "" && got.Rollout != DrainID("u") && got == (rollout.Drain{Rollout: got.Rollout}), "%s: read %+v", name, got)
	}
}

func TestTheStrategyOfDrains(t *testing.T) {
	evict := &v1alpha1.DrainOptions{TimeoutSeconds: 60}
	for name, tt := range map[string]struct {
		strategy v1alpha1.RolloutStrategy
		drains   bool
		timeout  int32
		may      *bool
		invalid  bool
	}{
		"none":                  {timeout: 900},
		"never":                 {strategy: v1alpha1.RolloutStrategy{Drain: v1alpha1.DrainNever}, timeout: 900, may: new(false)},
		"always":                {strategy: v1alpha1.RolloutStrategy{Drain: v1alpha1.DrainAlways}, drains: true, timeout: 900, may: new(true)},
		"when blocked":          {strategy: v1alpha1.RolloutStrategy{Drain: v1alpha1.DrainWhenBlocked, DrainOptions: evict}, drains: true, timeout: 60, may: new(true)},
		"permissions not known": {strategy: v1alpha1.RolloutStrategy{Drain: v1alpha1.DrainAlways}, drains: true, timeout: 900},
		"no permissions":        {strategy: v1alpha1.RolloutStrategy{Drain: v1alpha1.DrainAlways}, drains: true, timeout: 900, may: new(false), invalid: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := completeDrain(tt.strategy.DrainOptions)
			s := &v1alpha1.NodeConfigRolloutSpec{Strategy: tt.strategy}
			assert.That(t, rollout.Drains(s) == tt.drains && o.TimeoutSeconds == tt.timeout,
				"it drains %t, with %+v", rollout.Drains(s), o)
			err := checkDrain(s, &v1alpha1.RolloutController{Drain: tt.may})
			assert.That(t, (err != nil) == tt.invalid && (err == nil || strings.Contains(err.Error(), "kubectl apply -k config/drain")),
				"the error is %v", err)
		})
	}
}
