// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// Checks of single invariants of docs/architecture.md that are not about one
// start alone.

// rollbackTakes is how long a node may take to leave a configuration that never
// becomes healthy, beside the health timeout of its agent.
const rollbackTakes = 90 * time.Second

// checkRollback checks invariant 3: a node leaves a configuration with which
// its kubelet never becomes healthy, whether it has a network or not. The
// caller holds m.mu.
func (m *machine) checkRollback() {
	p, a := m.process, m.agent
	if p == nil || a == nil || p.sha256 == "" || p.ended {
		return
	}

	b := m.w.behaviourOf(p.content, m.name)
	if b.sick == 0 || b.sick > 300*time.Millisecond || !p.healthySince.IsZero() {
		return // it may be healthy for some time
	}

	since := p.began
	if m.fault.After(since) {
		since = m.fault
	}

	m.w.book.must(!time.Now().After(since.Add(a.limits.HealthTimeout+rollbackTakes)),
		"invariant 3: %s has run %s for %s, which never becomes healthy; its network is closed: %t",
		m.name, p, time.Since(since), m.gate.isClosed())
}

// checkRestart checks invariant 6: an agent does not stop a kubelet to start it
// again with the same configuration. It reports whether the kubelet that this
// agent started last had the same configuration.
func (m *machine) checkRestart(a *agentProcess, p *process) (again bool) {
	m.mu.Lock()
	last, by := m.last, m.lastBy
	m.last, m.lastBy = p, a
	again = last != nil && by == a && last.sha256 == p.sha256
	stopped := again && last.exit.Stopped
	m.mu.Unlock()
	m.w.book.must(!stopped, "invariant 6: %s stops its kubelet and starts it again with %s", m.name, p)

	return again
}

// faultEffects is how long after a fault of its kubelet a machine may judge a
// good configuration as bad.
const faultEffects = 20 * time.Minute

// checkVerdicts checks invariant 7: no outage, clock, reboot or end of an agent
// makes a good configuration bad. fault is when something was last wrong with
// the machine itself. The caller holds checks.mu.
func (w *world) checkVerdicts(m *machine, fault time.Time, was map[string]int64, version string, bad []trial.BadConfig) {
	for _, b := range bad {
		content, known := w.checks.payloads[b.SHA256]
		if _, old := was[version+b.SHA256]; old || b.Provisional || !known || w.faulty(content, m.name) != (behaviour{}) {
			continue
		}

		w.book.must(!fault.IsZero() && b.Time.Sub(fault) < faultEffects, // the entry can be older than this start, which is the first since
			"invariant 7: %s records content %d as bad, with which nothing is wrong: %s", m.name, content, b)
	}
}

// checkForgotten checks invariant 8: a node forgets its last-known-good only if
// local is asked for. The caller holds checks.mu.
func (w *world) checkForgotten(m *machine, st trial.State) {
	was := w.checks.good[m.name]
	now := knownGood{local: st.LastKnownGood.IsLocal(), seen: time.Now()}
	w.checks.good[m.name] = now
	if was.seen.IsZero() || was.local || !now.local || m.ownConfigMap {
		return
	}

	w.book.must(slices.ContainsFunc(w.checks.assigned[m.name], func(x assigned) bool {
		return x.uid == "" && !x.takenBack && (x.to.IsZero() || x.to.After(was.seen.Add(-lookBack)))
	}), "invariant 8: %s has forgotten its last-known-good, and nobody asked for local", m.name)
}

// knownGood is what a machine was last seen to have as last-known-good.
type knownGood struct {
	local bool
	seen  time.Time // zero: never
}

// The bounds of what may grow.
const (
	mostCheckpoints = 3       // of an agent
	mostFiles       = 40      // of an agent
	mostBytes       = 1 << 17 // of a file or an object
	mostRevisions   = 25      // that are kept as ConfigMaps
)

// checkSizes checks that nothing has piled up, and that neither records nor
// objects have grown without a bound.
func (w *world) checkSizes() {
	for _, m := range w.machines {
		if !m.isOn() {
			continue
		}

		d := locked(&m.mu, func() *crashfs.FS { return m.disk })
		var files []string
		var walk func(dir string)
		walk = func(dir string) {
			entries, err := d.ReadDir(dir)
			w.direct(err)
			w.book.must(dir != stateDir+"/checkpoints" || len(entries) <= mostCheckpoints, "%s keeps %d checkpoints", m.name, len(entries))
			for _, e := range entries {
				if e.IsDir() {
					walk(path.Join(dir, e.Name()))
				} else {
					files = append(files, path.Join(dir, e.Name()))
				}
			}
		}
		walk(stateDir)
		w.book.must(len(files) <= mostFiles, "the agent of %s has %d files: %v", m.name, len(files), files)
		for _, name := range files {
			if info, err := d.Lstat(name); err == nil && info.Mode()&fs.ModeType == 0 && info.Size() > mostBytes {
				w.book.fail("%s of %s has %d bytes", name, m.name, info.Size())
			}
		}
	}

	for _, kind := range []string{"nodeconfigs", "nodeconfigrollouts", "nodes"} {
		for _, name := range w.server.Names(kind, "") {
			content, _ := get[map[string]any](w, kind, "", name)
			n := len(text(content))
			w.book.must(n <= mostBytes, "%s %s has %d bytes", kind, name, n)
		}
	}

	preflights := len(w.server.Names("nodeconfigpreflights", ""))
	w.book.must(preflights <= len(w.machines), "there are %d NodeConfigPreflights for %d machines", preflights, len(w.machines))
	revisions := slices.DeleteFunc(w.server.Names("configmaps", v1alpha1.SystemNamespace), func(name string) bool {
		return strings.HasPrefix(name, "by-hand") || strings.HasPrefix(name, "kubelet-")
	})
	w.book.must(len(revisions) <= mostRevisions, "there are %d ConfigMaps of revisions", len(revisions))
	w.book.must(w.server.Watches() <= 20+6*len(w.machines), "%d watches are open", w.server.Watches())
}

// takenBack reports whether a NodeConfig without a source is one that a rollout
// took back.
func takenBack(nc *v1alpha1.NodeConfig) bool {
	return nc.Spec.ConfigSource == nil && nc.Spec.TakenBack != nil
}
