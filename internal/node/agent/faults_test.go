// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// TestAfterACrashAtAnyPointTheNodeRunsAnAllowedConfig crashes the machine after
// each operation of each scenario, with unsynced writes lost, kept or torn, and
// starts the node again with and without the API.
func TestAfterACrashAtAnyPointTheNodeRunsAnAllowedConfig(t *testing.T) {
	var visited, distinct atomic.Int32
	t.Run("scenarios", func(t *testing.T) {
		for _, s := range scenarios {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				p := before(t, s)
				for n, more := 0, true; more; n++ {
					synctest.Test(t, func(t *testing.T) { more = crash(t, s, p, n, &visited, &distinct) })
				}
			})
		}
	})
	t.Logf("%d states visited, %d of them distinct", visited.Load(), distinct.Load())
}

// crash runs a scenario until the machine crashes after n operations, and then
// what may follow. It returns whether the scenario has more operations.
func crash(t *testing.T, s scenario, p past, n int, visited, distinct *atomic.Int32) (more bool) {
	w := p.world(t)
	newInvariants(w, fmt.Sprintf("before the crash after operation %d", n))
	w.disk.CrashAfter(n)
	w.start()
	w.pass(time.Second)
	s.play(w)
	crashed := w.disk
	w.become(crashed)
	seen := map[string]bool{}
	for _, fate := range slices.Sorted(maps.Keys(crashfs.Choices)) {
		visited.Add(2)
		image := crashed.Reboot(crashfs.Choices[fate])
		what := content(image, "/")
		if seen[what] {
			continue
		}

		seen[what] = true
		for _, up := range []bool{true, false} {
			distinct.Add(1)
			again(t, w, image, fate, up, p.good, fmt.Sprintf("crash after operation %d, %s, API up: %t", n, fate, up))
		}
	}

	return crashed.Crashed()
}

// again starts a node with the disk after a crash.
func again(t *testing.T, old *world, image *crashfs.FS, fate string, up bool, good, where string) {
	t.Helper()
	w := newWorld(t)
	w.log, w.names = nil, old.names
	w.disk = image.Reboot(crashfs.Choices["all kept"])
	w.kubelet.s = old.kubelet.get().clone()
	w.api.ref, w.api.object, w.api.generation, w.api.revoked, w.api.up = old.api.ref, old.api.object, old.api.generation, old.api.revoked, up
	if fate != "all kept" { // else only the agent died
		w.boot = "boot-2"
	}

	r := newInvariants(w, where)
	found := w.view().LastKnownGood
	r.isProven(found.Config)
	w.start()
	defer w.stop()
	w.pass(2 * time.Second)
	r.atRest()
	if !up {
		if now := w.view().LastKnownGood; now.IsLocal() && !found.IsLocal() {
			r.complain("%s was last-known-good, and is forgotten with the API away", found.Revision)
		}

		return
	}

	if fate == "all lost" || fate == "all kept" { // this takes a while
		w.pass(wholeTrial + 10*time.Second)
		r.settled(good)
	}
}

// content returns the whole content of a disk.
func content(disk *crashfs.FS, at string) string {
	entries, err := disk.ReadDir(at)
	if err != nil {
		return err.Error()
	}

	all := ""
	for _, e := range entries {
		name := at + "/" + e.Name()
		if e.IsDir() {
			all += name + "{" + content(disk, name) + "}"
			continue
		}

		data, err := disk.ReadFile(name)
		all += fmt.Sprintf("%s=%q %v\n", name, data, err)
	}

	return all
}

// TestKubeletSurvivesAnyFailedDiskOperation fails each operation of each
// scenario, once or from then on, and then repairs the disk.
func TestKubeletSurvivesAnyFailedDiskOperation(t *testing.T) {
	var visited atomic.Int32
	t.Run("scenarios", func(t *testing.T) {
		for _, s := range scenarios {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				p := before(t, s)
				for _, forever := range []bool{false, true} {
					for n, more := 1, true; more; n++ {
						synctest.Test(t, func(t *testing.T) { more = fail(t, s, p, n, forever) })
						visited.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d states visited", visited.Load())
}

// fail runs a scenario in which operation n fails, alone or with all later
// ones. It returns whether the scenario has more operations.
func fail(t *testing.T, s scenario, p past, n int, forever bool) (more bool) {
	cause := []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS}[n%3]
	w := p.world(t)
	w.log = &lines{}
	r := newInvariants(w, fmt.Sprintf("operation %d fails with %v, forever: %t", n, cause, forever))
	from := w.disk.Operations()
	switch {
	case !forever:
		w.disk.FailAt(n, cause)
	case cause == syscall.ENOSPC:
		w.disk.FailFrom(n, cause, crashfs.NeedSpace...)
	default:
		w.disk.FailFrom(n, cause)
	}

	w.start()
	defer w.stop()
	w.pass(time.Second)
	if w.gone() {
		if !strings.Contains(w.err.Error(), "dynamic config") || !strings.Contains(w.err.Error(), cause.Error()) {
			r.complain("the agent ended: %v", w.err)
		}

		w.disk.Heal()
		w.restart()
	}

	s.play(w)
	failed, more := hit(w.disk.Log()[from:], n, forever && cause == syscall.ENOSPC)
	if failed && w.log.count(cause.Error()) == 0 && w.err == nil {
		r.complain("the failure is not reported")
	}

	if status := w.status(); forever && failed && status.Error != "" && w.intended() != "" && status.Active == nil {
		if !strings.Contains(status.Error, cause.Error()) {
			r.complain("the intended configuration is not adopted; status.error is %q", status.Error)
		}
	}

	w.disk.Heal()
	mayWait := s.name == "revoked" // which can be taken back
	if v := w.view(); !more && (r.named(v.LastKnownGood.Config) != s.ends || v.Trial != nil && !mayWait) {
		r.complain("without a failure it ends with last-known-good %s, want %s, trial %+v", v.LastKnownGood.Revision, orLocal(s.ends), v.Trial)
	}

	w.pass(wholeTrial + 45*time.Second)
	r.settled(p.good)
	if gap := w.kubelet.get().gap; gap > 9*time.Second {
		r.complain("there was no kubelet for %s", gap)
	}

	return more
}

// hit reports whether an operation has failed, and whether the scenario had
// enough operations. A full disk does not fail all of them.
func hit(log []string, n int, full bool) (failed, enough bool) {
	for _, op := range log[min(len(log), n-1):] {
		verb, _, _ := strings.Cut(op, " ")
		failed = failed || !full || slices.Contains(crashfs.NeedSpace, crashfs.Op(verb))
	}

	return failed, len(log) >= n
}

// gone reports whether the agent has ended by itself.
func (w *world) gone() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}
