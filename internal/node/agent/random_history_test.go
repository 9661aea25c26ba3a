// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

var histories = flag.Int("histories", 100, "number of random histories of an agent")

// TestInvariantsHoldInRandomHistoriesOfAnAgent edits the local file and
// replaces the binary at any time, with any verdict. Package trial has
// histories of the decision alone.
func TestInvariantsHoldInRandomHistoriesOfAnAgent(t *testing.T) {
	for seed := range *histories {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{Rand: rand.New(rand.NewPCG(uint64(seed), 0)), world: newWorld(t)}
				h.run()
			})
		})
	}
}

// history is a world in which anything happens.
type history struct {
	*rand.Rand
	*world
	inv      *invariants
	assigned int
	binaries int
	began    int       // starts of kubelets before this agent
	acted    time.Time // when something happened last
}

// assignable are the configurations that may be assigned.
var assignable = []conf{
	good, better, typo, crasher, sick, {name: "loses", loses: true}, {name: "dead", crashes: time.Millisecond},
	{name: "drop", dropin: true}, {name: "drop-sick", dropin: true, sick: true}, {name: "drop-crasher", dropin: true, crashes: time.Second},
}

func (h *history) coin() bool { return h.IntN(2) == 0 }

func (h *history) run() {
	defer h.stop()
	h.inv = newInvariants(h.world, "in a random history")
	if h.coin() {
		h.options = protecting
	}

	h.restarted(h.start)
	steps := []func(){
		h.assignAny, h.assignAny, h.assignAny, h.edit, h.edit, h.replace, h.replace, h.die, h.assignLocal,
		func() { h.unassign("nc-1", nil) },
		func() { h.unassign("nc-1", &v1alpha1.TakenBackAssignment{Rollout: "workers", Revision: 1, Attempt: 9}) },
		func() {
			if uid := string(h.view().Current.UID); uid != "" {
				h.revoke(types.UID(uid))
			}
		},
		func() { h.revoke() },
		func() { h.apiUp(h.coin()) },
		func() { h.api.set(func(api *simAPI) { api.ready = h.coin() }) },
		func() { h.restarted(h.restart) },
		func() { h.restarted(func() { h.kill(); h.start() }) },
		func() {
			if bad := h.view().Bad; len(bad) > 0 {
				h.forget(bad[0].Revision)
			}
		},
	}
	for range 25 {
		h.acted = time.Now()
		steps[h.IntN(len(steps))]()
		h.pass([]time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second, 15 * time.Second, time.Minute, 3 * time.Minute}[h.IntN(7)])
		h.mayHaveEnded()
	}

	h.finish()
}

func (h *history) restarted(how func()) {
	h.began = len(h.kubelet.get().starts)
	how()
}

func (h *history) assignAny() {
	c := assignable[h.IntN(len(assignable))]
	h.assigned++
	uid := fmt.Sprintf("uid-%s-%d", c.name, h.assigned)
	if h.coin() {
		uid = "uid-" + c.name
	}

	h.assign(uid, c, int64(1+h.IntN(3)))
}

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

// edit edits the local file, which may become invalid.
func (h *history) edit() {
	h.inv.edited = time.Now()
	c := conf{maxPods: 90 + h.IntN(20)}
	if h.coin() {
		c.rejected = fmt.Sprintf("unknown field: line %d", h.IntN(20))
	}

	h.behaves(c)
}

// replace replaces the binary by one that may reject other configurations.
func (h *history) replace() {
	h.inv.edited = time.Now()
	h.binaries++
	h.kubelet.set(func(s *kubeletState) {
		s.identity, s.version = fmt.Sprintf("replaced-%d", h.binaries), []string{"v1.36.3", "v1.37.0"}[h.IntN(2)]
		s.refuses = map[string]bool{"": h.IntN(8) == 0}
		for _, c := range assignable {
			s.refuses[c.name] = h.IntN(4) == 0
		}
	})
}

func (h *history) die() {
	if h.kubelet.running() != nil {
		h.dies(exitOne)
	}
}

// mayHaveEnded repairs the local configuration if the agent has ended because
// of it. The agent must not have stopped a kubelet before.
func (h *history) mayHaveEnded() {
	h.t.Helper()
	if !h.gone() {
		return
	}

	s := h.kubelet.get()
	if !errors.Is(h.err, ErrLocalInvalid) || s.rejection("") == "" {
		h.inv.complain("the agent ended with %v", h.err)
	}
	if whileStopped := s.ended.Sub(h.acted) <= s.stopTakes; len(s.starts) > h.began && s.exit.Stopped && !whileStopped {
		h.inv.complain("the agent stopped a kubelet that nothing could replace")
	}

	h.stop()
	h.mend()
	h.restarted(h.start)
}

func (h *history) mend() {
	h.kubelet.set(func(s *kubeletState) { s.confs[""], s.refuses = conf{maxPods: 80}, nil })
}

// finish ends each history: what is good becomes last-known-good.
func (h *history) finish() {
	h.t.Helper()
	h.pass(time.Second)
	h.mayHaveEnded()
	h.mend()
	h.apiUp(true)
	h.api.set(func(api *simAPI) { api.ready = true })
	h.revoke()
	h.assign("uid-last", conf{name: "last"}, 9)
	h.promoted("uid-last")
	h.inv.atRest()
	if h.t.Failed() {
		h.t.Logf("\n%s", h.tail())
	}
}
