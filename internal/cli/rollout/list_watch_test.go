// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestRolloutsAreWatched(t *testing.T) {
	for _, tt := range []struct {
		name string
		want []string // in this order
		args []string
	}{
		{"table", []string{"NAME ", "a - Unseen ", "a - Halted "}, nil},
		{"JSON", []string{`"name":"a"`, `"phase":"Halted"`}, []string{"-o", "json"}},
		{"YAML", []string{"---\napiVersion: evenkeel.dev/v1alpha1\n", "phase: Halted\n"}, []string{"-o", "yaml"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI(t)
				watch := api.Begin(append([]string{"rollout", "list", "-w"}, tt.args...)...)
				next := func() { time.Sleep(10 * time.Second); synctest.Wait() }
				next()
				r := api.AddRollout("a", "a", fakeapi.Pods(50), nil)
				next()
				r.Status.Phase, r.Status.ObservedGeneration = v1alpha1.RolloutHalted, r.Generation
				api.Report(r)
				next()
				assert.NoError(t, api.Delete(t.Context(), r))
				next()
				watch.Interrupt()
				got := <-watch.Ended
				got.Want(t, command.ExitComplete, tt.want, "note: rollout a is no longer listed")
				assert.That(t, strings.Count(got.Out, "Halted") == 1, "a change is shown several times:\n%s", got.Out)
			})
		})
	}
}

func TestAWatchOfRolloutsNeedsPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(t)
		api.Forbid("watch", "NodeConfigRollout")
		api.Run("rollout", "list", "-w").WantError(t, "is forbidden", "evenkeel's role evenkeel-view includes this permission")
	})
}

func TestTheListSaysWhatNeedsAPerson(t *testing.T) {
	api := newAPI(t)
	for name, phase := range map[string]v1alpha1.RolloutPhase{"back": v1alpha1.RolloutRollingBack, "done": v1alpha1.RolloutComplete, "cold": v1alpha1.RolloutFrozen} {
		api.AddRollout(name, name, fakeapi.Pods(50), func(r *v1alpha1.NodeConfigRollout) {
			r.Spec.Frozen = name != "done"
			r.Status.Phase, r.Status.ObservedGeneration, r.Status.Nodes.Pending = phase, 1, 3
		})
	}
	got := api.Run("rollout", "list")
	got.Want(t, 0, []string{"back - RollingBack,Frozen ", "cold - Frozen ", "done - Complete "},
		"note: no controller leads: namespace evenkeel-system has no Lease evenkeel-controller: kubectl evenkeel doctor\nnote: 1 rollout frozen while rolling back: kubectl evenkeel rollout status back\nnote: 1 rollout frozen before the end: kubectl evenkeel rollout status cold\n")
	assert.That(t, !strings.Contains(got.Err, "done"), "a rollout that is well is mentioned: %s", got.Err)
}
