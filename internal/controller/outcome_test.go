// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller/gate"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheStatusOfAStoppedRolloutHasReasonRequestsAndSettings(t *testing.T) {
	world(t)
	roll(t, "stopped")
	c := newController(t, own(), func(o *Options) {
		o.PrometheusServers, o.Maintenance = []gate.Server{{Name: "main", URL: "http://localhost"}}, []string{"example.com/repair"}
	})
	c.fleet.setRollout(rolloutNamed(t, "stopped"))
	r := c.fleet.rollouts["stopped"]
	in := rollout.Input{
		Claim: rollout.Claim{Name: "stopped"}, Now: time.Now().Truncate(time.Second), Generation: r.object.Generation, Controller: c.settings,
		Spec: v1alpha1.NodeConfigRolloutSpec{Abort: &v1alpha1.RolloutAbort{Revision: 1, Reason: "wrong value"}},
		Target: v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: v1alpha1.ConfigMapReference{
			Namespace: "n", Name: "stopped-1", UID: "u", SHA256: digest("stopped"),
		}},
	}
	result := rollout.Plan(in, nil)
	var written []string
	for range 2 {
		assert.NoError(t, assert.Err(c.recordStatus(t.Context(), r, &planInput{object: r.object, Input: in}, &result)))
		written = append(written, rolloutNamed(t, "stopped").ResourceVersion)
	}

	assert.That(t, written[0] == written[1], "a recorded status was written again")
	st := rolloutNamed(t, "stopped").Status
	h := st.History
	assert.That(t, len(h) == 1 && h[0].Outcome == v1alpha1.OutcomeHalted && h[0].Message == "Aborted: stopped by a person: wrong value" &&
		h[0].Reason == v1alpha1.HaltAborted, "the history is %+v", h)
	settings := st.Controller
	assert.That(t, settings != nil && len(settings.PrometheusServers) == 1 && len(settings.Maintenance) == 1, "the settings are %+v", settings)
}
