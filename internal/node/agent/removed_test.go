// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// unassign writes a spec without a source.
func (w *world) unassign(uid types.UID, takenBack *v1alpha1.TakenBackAssignment, revoked ...types.UID) {
	w.api.set(func(api *simAPI) {
		if api.uid != uid {
			api.generation = 0
		}

		api.uid, api.ref, api.object, api.takenBack, api.revoked = uid, nil, nil, takenBack, revoked
		api.generation++
	})
}

// TestOnlyARemovalFromTheAssigningObjectMeansLocal tries the meanings of a
// NodeConfig without a source. The agent is restarted before it sees the
// NodeConfig, so that only the saved state counts.
func TestOnlyARemovalFromTheAssigningObjectMeansLocal(t *testing.T) {
	back := &v1alpha1.TakenBackAssignment{Rollout: "workers", Revision: 1, Attempt: 1}
	for _, c := range []struct {
		name    string
		attempt []int64 // of a rollout; none: a person assigned it
		then    func(w *world)
		runs    string
		good    string // last-known-good
	}{
		{"removed by a person", nil, func(w *world) { w.unassign("nc-1", nil) }, "", ""},
		{"made anew", nil, func(w *world) { w.unassign("nc-2", nil) }, "good", "uid-good"},
		{"taken back by a rollout", []int64{1}, func(w *world) { w.unassign("nc-1", back) }, "good", "uid-good"},
		{"removed and revoked", nil, func(w *world) { w.unassign("nc-1", nil, "uid-good") }, "", "uid-good"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start()
				w.assign("uid-good", good, c.attempt...)
				w.promoted("uid-good")
				w.stop()
				w.source = nil
				c.then(w)
				w.start()
				w.pass(30 * time.Second)
				w.runs(c.runs)
				assert.Equal(t, w.view().LastKnownGood.Revision, c.good, "last-known-good")
				w.restart()
				w.pass(30 * time.Second)
				w.runs(c.runs)
			})
		})
	}
}
