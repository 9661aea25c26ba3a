// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

var (
	good    = conf{name: "good"}
	better  = conf{name: "better"}
	typo    = conf{name: "typo", rejected: "unknown field maxPodz"}
	crasher = conf{name: "crasher", crashes: 700 * time.Millisecond}
	sick    = conf{name: "sick", sick: true}
)

// scenario is a change of a node. It continues after failures and checks
// nothing itself: invariants does.
type scenario struct {
	name string
	from func(w *world) // what was before, without faults
	ends string         // the configuration that is last-known-good after it, without faults
	play func(w *world)
}

const wholeTrial = 55 * time.Second

// withGood starts an agent, and gives the node a good configuration.
func withGood(w *world) {
	w.start()
	w.pass(time.Second)
	w.assign("uid-good", good)
	w.pass(wholeTrial)
}

// withBad gives the node a configuration that has failed and would now work.
func withBad(w *world) {
	withGood(w)
	w.assign("uid-crasher", crasher, 1)
	w.pass(15 * time.Second)
	w.behaves(conf{name: "crasher"})
}

var scenarios = []scenario{
	{"a first good one", (*world).start, "good", func(w *world) {
		w.assign("uid-good", good)
		w.pass(wholeTrial)
	}},
	{"another good one", withGood, "better", func(w *world) {
		w.assign("uid-better", better)
		w.pass(wholeTrial)
	}},
	{"one that is rejected", withGood, "good", func(w *world) {
		w.assign("uid-typo", typo)
		w.pass(5 * time.Second)
	}},
	{"one that crash-loops", withGood, "good", func(w *world) {
		w.assign("uid-crasher", crasher)
		w.pass(15 * time.Second)
	}},
	{"one that is never healthy", withGood, "good", func(w *world) {
		w.assign("uid-sick", sick)
		w.pass(90 * time.Second) // until the verdict is final
	}},
	{"nil", withGood, "", func(w *world) {
		w.assignLocal()
		w.pass(5 * time.Second)
	}},
	{"retargeted in its trial", withGood, "better", func(w *world) {
		w.assign("uid-sick", sick)
		w.pass(8 * time.Second)
		w.assign("uid-better", better)
		w.pass(wholeTrial)
	}},
	{"the same payload under other UIDs", withGood, "better", func(w *world) {
		w.assign("uid-good-2", good)
		w.pass(5 * time.Second)
		w.assign("uid-better", better)
		w.pass(20 * time.Second)
		w.assign("uid-better-2", better)
		w.pass(30 * time.Second)
	}},
	{"a bad one in a higher attempt", withBad, "crasher", func(w *world) {
		w.assign("uid-crasher", crasher, 2)
		w.pass(wholeTrial)
	}},
	{"a bad one is forgotten", withBad, "crasher", func(w *world) {
		if err := checkpoint.RequestForget(w.disk, dir, "uid-crasher"); err != nil && w.log != nil {
			fmt.Fprintln(w.log, "level=OPERATOR", err)
		}

		w.pass(wholeTrial + 10*time.Second)
	}},
	{"revoked", withGood, "good", func(w *world) {
		w.assign("uid-better", better)
		w.pass(10 * time.Second)
		w.revoke("uid-better")
		w.pass(5 * time.Second)
	}},
	{"another version of the kubelet", withGood, "better", func(w *world) {
		w.assign("uid-better", better)
		w.pass(10 * time.Second)
		w.replaceBinary("v1.37.0")
		w.pass(wholeTrial)
	}},
	{"the agent ends and comes back", withGood, "better", func(w *world) {
		w.assign("uid-better", better)
		w.pass(22 * time.Second)
		w.restart()
		w.pass(30 * time.Second)
	}},
}

// past is the state of a world at the begin of a scenario.
type past struct {
	disk       *crashfs.FS
	kubelet    kubeletState
	ref        *v1alpha1.NodeConfigSource
	object     *corev1.ConfigMap
	generation int64
	names      map[string]string
	good       string // last-known-good
}

// before runs what precedes a scenario.
func before(t *testing.T, s scenario) past {
	var p past
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s.from(w)
		p.good = w.view().LastKnownGood.Revision
		w.stop()
		p.disk, p.kubelet, p.names = w.disk, w.kubelet.get().clone(), w.names
		p.ref, p.object, p.generation = w.api.ref, w.api.object, w.api.generation
	})

	return p
}

// world returns a new world with that past, on its own disk.
func (p past) world(t *testing.T) *world {
	w := newWorld(t)
	w.log = nil
	w.disk = p.disk.Reboot(crashfs.Choices["all kept"])
	w.kubelet.s = p.kubelet.clone()
	w.api.ref, w.api.object, w.api.generation = p.ref, p.object, p.generation
	maps.Copy(w.names, p.names)

	return w
}

func (w *world) revoke(uids ...types.UID) {
	if w.disk.Crashed() {
		return
	}

	w.api.set(func(api *simAPI) {
		api.revoked = uids
		api.generation++
	})
}

// restart stops the agent cleanly and starts another.
func (w *world) restart() {
	if w.disk.Crashed() {
		return
	}

	w.stop()
	w.start()
}

// intended returns the assigned revision; "" is local.
func (w *world) intended() string {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	if w.api.ref == nil || w.api.ref.ConfigMapRef == nil {
		return ""
	}

	return string(w.api.ref.ConfigMapRef.UID)
}
