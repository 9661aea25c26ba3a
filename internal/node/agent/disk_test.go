// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

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
	r := newInvariants(w)
	r.where = fmt.Sprintf("operation %d fails with %v, forever: %t", n, cause, forever)
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
		w.stop()
		w.start()
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
