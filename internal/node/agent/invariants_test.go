// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// invariants checks the invariants of docs/architecture.md.
type invariants struct {
	w      *world
	where  string    // said with every complaint
	edited time.Time // when the local configuration or the binary was replaced, perhaps while the kubelet was being stopped
}

// newInvariants checks each start of a kubelet from now on.
func newInvariants(w *world, where string) *invariants {
	r := &invariants{w: w, where: where}
	w.kubelet.set(func(*kubeletState) { w.kubelet.onStart = r.started })
	return r
}

func (r *invariants) complain(format string, args ...any) {
	r.w.t.Helper()
	r.w.t.Errorf(r.where+": "+format+"\n%s", append(args, r.w.tail())...)
}

// started is invariants 1 and 4 for the disk: the started configuration was not
// rejected, has a role in the state, and is not bad.
func (r *invariants) started(name string) {
	w, s := r.w, &r.w.kubelet.s
	if words := s.rejection(name); words != "" && time.Since(r.edited) > s.stopTakes {
		r.complain("started %s, which its dry run rejects: %s", orLocal(name), words)
	}
	if words := s.rejection(""); words != "" && s.confs[name].dropin && time.Since(r.edited) > s.stopTakes {
		r.complain("started %s over a local configuration that its dry run rejects: %s", name, words)
	}
	if name == "" {
		return
	}

	v, err := checkpoint.ReadOnly(w.disk, dir, s.version)
	if err != nil {
		r.complain("started %s, but the state cannot be read: %v", name, err)
	}

	allowed := false
	for _, c := range []trial.Config{v.State.Current.Config, v.State.LastKnownGood.Config} {
		_, bad := v.State.BadEntry(c)
		allowed = allowed || r.named(c) == name && !bad && !v.State.IsRevoked(c)
	}

	if !allowed {
		r.complain("started %s, but saved are current %q, last-known-good %q, bad %v", name, v.State.Current.Revision, v.State.LastKnownGood.Revision, v.State.Bad)
	}
}

// named returns the name of an assigned configuration.
func (r *invariants) named(c trial.Config) string { return r.w.names[c.Revision] }

// isProven is invariant 2 for a last-known-good configuration.
func (r *invariants) isProven(good trial.Config) {
	if good.IsLocal() {
		return
	}

	healthy := time.Duration(0)
	for _, version := range []string{"v1.36.3", "v1.37.0"} {
		healthy = max(healthy, r.w.kubelet.observedHealthy(version, r.named(good)))
	}
	if healthy < limits.TrialDuration {
		r.complain("%s is last-known-good, and was healthy for %s", good.Revision, healthy)
	}
}

// atRest is invariants 4 and 5: a kubelet runs, the agent reports its
// configuration, and another decision changes nothing.
func (r *invariants) atRest() {
	w := r.w
	w.t.Helper()
	for wait := time.Duration(0); w.kubelet.running() == nil || len(w.reporter.last().Status.Conditions) == 0; wait += time.Second {
		if wait > 30*time.Second {
			r.complain("no kubelet runs, the agent says %s", w.configOK())
			return
		}

		w.pass(time.Second)
	}

	name, v, status := w.kubelet.running().conf.name, w.view(), w.status()
	said, label := "", "(init)"
	if status.Active != nil {
		said, label = w.names[string(status.Active.UID)], "(UID: "+string(status.Active.UID)+")"
	}
	if said != name || !strings.Contains(status.Conditions[0].Message, label) {
		r.complain("%s runs, the agent says %s: %s", orLocal(name), orLocal(said), status.Conditions[0].Message)
	}
	if name != "" && name != r.named(v.Current.Config) && name != r.named(v.LastKnownGood.Config) {
		r.complain("%s runs, but saved are current %q, last-known-good %q", name, v.Current.Revision, v.LastKnownGood.Revision)
	}

	r.isProven(v.LastKnownGood.Config)
	r.fixedPoint()
}

// fixedPoint makes another decision with no time elapsed.
func (r *invariants) fixedPoint() {
	a := r.w.agent
	a.gather()
	a.saveDownload()
	o := a.observe(context.Background())
	a.renewVerdicts(context.Background(), &o)
	o.Elapsed, o.Guard = 0, a.permit()
	d := trial.Decide(a.state, o)
	if d.Ask != nil {
		o.Guard = a.ask(context.Background(), *d.Ask)
		d = trial.Decide(a.state, o)
	}

	if len(d.Validate) > 0 || !o.Child.Alive {
		return // not at rest
	}
	if d.Action.Kind != trial.None || len(d.Events) > 0 || !reflect.DeepEqual(d.Next, a.state) {
		r.complain("deciding again changes something: %v %q, %v\n%+v\n%+v", d.Action.Kind, d.Action.Config.Revision, d.Events, a.state, d.Next)
	}
}

// settled checks the final state with a reachable API: the intended
// configuration runs if it is good. If it is known to be bad, the earlier good
// one runs.
func (r *invariants) settled(good string) {
	w := r.w
	w.t.Helper()
	r.atRest()
	v, status := w.view(), w.status()
	active := ""
	if status.Active != nil {
		active = string(status.Active.UID)
	}

	if intended := w.intended(); active != intended {
		if _, bad := v.BadEntry(trial.Config{Revision: intended}); !bad && !v.IsRevoked(trial.Config{ConfigRevision: v1alpha1.ConfigRevision{UID: types.UID(intended)}}) || intended == "" {
			r.complain("%q runs, intended is %q, which is not bad: %s", active, intended, w.configOK())
		}
		if active != v.LastKnownGood.Revision {
			r.complain("%q runs instead of last-known-good %q", active, v.LastKnownGood.Revision)
		}
	} else if v.LastKnownGood.Revision != intended {
		r.complain("%q runs well, but last-known-good is %q", intended, v.LastKnownGood.Revision)
	}

	if good != "" && v.LastKnownGood.IsLocal() && w.intended() != "" {
		r.complain("last-known-good was %q and is forgotten, although nil was not assigned", good)
	}
}
