// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// wantGaveUp checks an error's cause and how its text begins.
func wantGaveUp(t *testing.T, err error, words string) {
	t.Helper()
	var failed *Error
	assert.That(t, errors.As(err, &failed) && failed.Failure == GaveUp && strings.HasPrefix(err.Error(), words), "the error is %v, want GaveUp and %q", err, words)
}

func TestAnAttemptThatGaveTheNodeUpIsRememberedOnDisk(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	a := &Attempt{Dir: t.TempDir(), ID: "a", Log: slog.New(slog.DiscardHandler)}
	remembered := func(want checkpoint.GivenUp) {
		t.Helper()
		assert.Returns(t, want, "remembered is")(checkpoint.LastGivenUp(atomicfile.OS{}, a.Dir))
	}
	assert.NoError(t, a.CheckStart(now))
	gaveUp := fail(GaveUp, errors.New("no kubelet was healthy"))
	wantGaveUp(t, a.Ended(gaveUp, now), "no kubelet was healthy; see the kubelet's log above")
	remembered(checkpoint.GivenUp{By: "a", At: now, Times: 1})
	wantGaveUp(t, a.CheckStart(now.Add(59*time.Minute)), "this kubelet was never healthy and released the node at 2030-01-02T03:04:05Z; "+
		"next attempt at 2030-01-02T04:04:05Z; correct the flags, the image or the local configuration; delete the pod to retry now")
	assert.NoError(t, (&Attempt{Dir: a.Dir, ID: "b", Log: a.Log}).CheckStart(now), "another attempt")
	assert.NoError(t, a.CheckStart(now.Add(time.Hour)))
	odd := errors.New("odd")
	err := a.Ended(odd, now)
	assert.That(t, err == odd, "it ends with %v, want %v", err, odd)
	remembered(checkpoint.GivenUp{})
}

func TestADiskThatCannotRememberAnAttemptIsNoReasonToKeepOrRefuseTheNode(t *testing.T) {
	var log strings.Builder
	dir := t.TempDir()
	a := &Attempt{Dir: dir, ID: "a", Log: slog.New(slog.NewTextHandler(&log, nil))}
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "given-up"), []byte("no JSON"), 0o600))
	if err := a.CheckStart(time.Now()); err != nil || !strings.Contains(log.String(), "cannot read whether this kubelet has failed before") {
		t.Errorf("got %v, and the log is %s", err, log.String())
	}

	assert.NoError(t, a.Ended(nil, time.Now()))
	assert.Is(t, assert.Err(os.Stat(filepath.Join(dir, "given-up"))), os.ErrNotExist, "a file that is not understood is left")
	a.Dir = filepath.Join(dir, "gone")
	wantGaveUp(t, a.Ended(fail(GaveUp, errors.New("no kubelet")), time.Now()), "no kubelet")
	assert.That(t, strings.Contains(log.String(), "cannot record whether this kubelet released the node"), "the log is %s", log.String())
	a.Dir = "" // no --dynamic-config-dir
	assert.NoError(t, errors.Join(a.CheckStart(time.Now()), a.Ended(nil, time.Now())))
}

func TestTheKernelSaysWhetherAnotherAgentWaitsForTheNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock := assert.Value(lockfile.TryAcquire(path))(t)
	defer func() { _ = lock.Release() }()
	a := &Attempt{Limit: time.Minute, Lock: path, Log: slog.New(slog.DiscardHandler)}
	now := time.Now()
	for _, after := range []time.Duration{0, time.Minute} { // nobody waits, and the time begins again
		assert.NoError(t, a.CheckTenure(now.Add(after), false), "after", after)
	}

	waiter := locker(t, path)
	waits(t, waiter.Process.Pid)
	assert.NoError(t, a.CheckTenure(now.Add(90*time.Second), false), "within the limit")
	wantGaveUp(t, a.CheckTenure(now.Add(2*time.Minute), false), "no kubelet was healthy for 1m0s: the agent that waits for the lock takes over the node")
}
