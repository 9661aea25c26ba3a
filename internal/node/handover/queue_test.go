// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// waitsFor is how the lock tells who has it.
func waitsFor(pid int, name string) error {
	return fmt.Errorf("%w, as ever", &lockfile.HeldError{Path: "/run/lock/kubelet", By: lockfile.Process{PID: pid, Name: name}})
}

// newQueue is where an agent waits, and its log.
func newQueue(t *testing.T) (*queue, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	return &queue{path: "/run/lock/kubelet", service: quiet(t), log: slog.New(slog.NewTextHandler(log, nil))}, log
}

const (
	foreignWords = `msg="another program holds the node's lock; this node may have no kubelet; end that process, or give kubelets and agents another --lock-file" file=/run/lock/kubelet holder="process 7 (sleep)"`
	endedWords   = `msg="a child of an ended process still holds the node's lock; this node may have no kubelet; run fuser -v FILE and end that process" file=/run/lock/kubelet took="process 7, which has ended"`
)

// wantWarnings lets these minutes pass, and counts the lines with ERROR since
// the queue began.
func (q *queue) wantWarnings(t *testing.T, log *bytes.Buffer, minutes time.Duration, foreign, ended int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go q.watch(ctx)
		time.Sleep(warnInterval*minutes + time.Second) // on the bubble's clock
		cancel()
		synctest.Wait()
	})
	text := log.String()
	assert.That(t, strings.Count(text, foreignWords) == foreign && strings.Count(text, endedWords) == ended && strings.Count(text, "level=ERROR") == foreign+ended,
		"want %d and %d warnings:\n%s", foreign, ended, text)
}

func TestAHolderThatIsNoKubeletIsLoggedEveryMinute(t *testing.T) {
	q, log := newQueue(t)
	q.report(waitsFor(7, "sleep"))
	state := "waiting for the lock /run/lock/kubelet, held by process 7 (sleep)"
	assert.That(t, q.service.Probe.state == state && q.service.Probe.ready, "the probe is %+v", &q.service.Probe)
	line := `level=INFO msg="waiting for the node's lock" err="lock file /run/lock/kubelet: the lock is held by process 7 (sleep), as ever"`
	assert.That(t, strings.Contains(log.String(), line), "no line %s in\n%s", line, log)
	q.wantWarnings(t, log, 0, 1, 0)
	q.wantWarnings(t, log, 2, 3, 0)
	q.report(waitsFor(8, "kubelet"))
	q.wantWarnings(t, log, 2, 3, 0)
}

func TestAHolderThatHasEndedIsLoggedOnlyIfItsLockStaysHeld(t *testing.T) {
	q, log := newQueue(t)
	q.report(waitsFor(7, ""))
	state := "waiting for the lock /run/lock/kubelet, held by process 7, which has ended"
	assert.That(t, q.service.Probe.state == state, "the probe is %+v", &q.service.Probe)
	q.wantWarnings(t, log, 1, 0, 0)
	q.wantWarnings(t, log, 3, 0, 2)
	q.report(waitsFor(0, ""))
	q.wantWarnings(t, log, 3, 0, 2)
}

func TestOnlyAProcessThatIsNoKubeletAndNoAgentIsForeign(t *testing.T) {
	for by, want := range map[lockfile.Process]bool{
		{PID: 7, Name: "kubelet"}: false, {PID: 7, Name: "kubelet-v1.36.3"}: false, {PID: 7, Name: "evenkeel-agent"}: false,
		{}: false, {PID: 7}: false, {PID: 7, Name: "sleep"}: true,
	} {
		assert.Equal(t, isForeign(by), want, by, "foreign is")
	}
}
