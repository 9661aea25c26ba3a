package handover

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
)

func TestWhatGaveTheNodeUpDoesNotTakeItAgainAtOnce(t *testing.T) {
	begin := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	a := Attempt{dir: t.TempDir(), by: "a", log: slog.New(slog.DiscardHandler)}
	gives := fmt.Errorf("%w for 5m0s", agent.ErrGivesBack)
	var failed *Error
	now := begin
	for times, want := range []time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 16 * time.Hour, 24 * time.Hour, 24 * time.Hour} {
		if err := a.MayTry(now); err != nil {
			t.Fatalf("time %d: %v", times, err)
		}
		err := a.Ended(gives, now)
		if !errors.As(err, &failed) || failed.Failure != GaveUp || !errors.Is(err, agent.ErrGivesBack) {
			t.Errorf("time %d: it ended with %v", times, err)
		}
		again := now.Add(want)
		err = a.MayTry(again.Add(-time.Second))
		if !errors.As(err, &failed) || failed.Failure != GaveUp || !strings.Contains(err.Error(), "not tried again before "+again.Format(time.RFC3339)) {
			t.Errorf("time %d, a second too early: %v", times, err)
		}
		if err := a.MayTry(now.Add(-time.Second)); err != nil {
			t.Errorf("time %d, after the clock was set back: %v", times, err)
		}
		other := Attempt{dir: a.dir, by: "b", log: a.log}
		if err := other.MayTry(now); err != nil {
			t.Errorf("time %d, another one: %v", times, err)
		}
		now = again
	}
	// One that ended as it was told to is a new beginning.
	if err := a.Ended(nil, now); err != nil {
		t.Error(err)
	}
	if last, err := checkpoint.LastGivenUp(atomicfile.OS{}, a.dir); err != nil || last.Times != 0 {
		t.Errorf("remembered is %+v, %v", last, err)
	}
	// Another one begins to count anew.
	_, _ = a.Ended(gives, now), Attempt{dir: a.dir, by: "b", log: a.log}.Ended(gives, now)
	if last, err := checkpoint.LastGivenUp(atomicfile.OS{}, a.dir); err != nil || last.By != "b" || last.Times != 1 {
		t.Errorf("remembered is %+v, %v", last, err)
	}
}

func TestADiskThatCannotRememberAnAttemptIsNoReasonToKeepOrRefuseTheNode(t *testing.T) {
	var log strings.Builder
	dir := t.TempDir()
	a := Attempt{dir: dir, by: "a", log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := os.WriteFile(filepath.Join(dir, "given-up"), []byte("no JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.MayTry(time.Now()); err != nil || !strings.Contains(log.String(), "cannot tell whether this kubelet has failed before") {
		t.Errorf("got %v, and the log is %s", err, log.String())
	}
	a.dir = filepath.Join(dir, "gone")
	var failed *Error
	if err := a.Ended(agent.ErrGivesBack, time.Now()); !errors.As(err, &failed) || failed.Failure != GaveUp || !strings.Contains(log.String(), "cannot remember whether this kubelet gave the node up") {
		t.Errorf("got %v, and the log is %s", err, log.String())
	}
	a.dir = "" // no --dynamic-config-dir
	if err := errors.Join(a.MayTry(time.Now()), a.Ended(nil, time.Now())); err != nil {
		t.Error(err)
	}
}
