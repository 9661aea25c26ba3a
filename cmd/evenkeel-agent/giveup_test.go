package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/program"
)

func TestWhatGaveTheNodeUpDoesNotTakeItAgainAtOnce(t *testing.T) {
	begin := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	a := attempt{dir: t.TempDir(), by: "a", log: slog.New(slog.DiscardHandler)}
	gives := fmt.Errorf("%w for 5m0s", agent.ErrGivesBack)
	var coded *program.Exit
	now := begin
	for times, want := range []time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 16 * time.Hour, 24 * time.Hour, 24 * time.Hour} {
		if err := a.mayTry(now); err != nil {
			t.Fatalf("time %d: %v", times, err)
		}
		err := a.ended(gives, now)
		if !errors.As(err, &coded) || coded.Code != 9 || !errors.Is(err, agent.ErrGivesBack) {
			t.Errorf("time %d: it ended with %v", times, err)
		}
		again := now.Add(want)
		err = a.mayTry(again.Add(-time.Second))
		if !errors.As(err, &coded) || coded.Code != 9 || !strings.Contains(err.Error(), "not tried again before "+again.Format(time.RFC3339)) {
			t.Errorf("time %d, a second too early: %v", times, err)
		}
		if err := a.mayTry(now.Add(-time.Second)); err != nil {
			t.Errorf("time %d, after the clock was set back: %v", times, err)
		}
		other := attempt{dir: a.dir, by: "b", log: a.log}
		if err := other.mayTry(now); err != nil {
			t.Errorf("time %d, another one: %v", times, err)
		}
		now = again
	}
	// One that ended as it was told to is a new beginning.
	if err := a.ended(nil, now); err != nil {
		t.Error(err)
	}
	if last, err := checkpoint.LastGivenUp(atomicfile.OS{}, a.dir); err != nil || last.Times != 0 {
		t.Errorf("remembered is %+v, %v", last, err)
	}
	// Another one begins to count anew.
	_, _ = a.ended(gives, now), attempt{dir: a.dir, by: "b", log: a.log}.ended(gives, now)
	if last, err := checkpoint.LastGivenUp(atomicfile.OS{}, a.dir); err != nil || last.By != "b" || last.Times != 1 {
		t.Errorf("remembered is %+v, %v", last, err)
	}
}

func TestADiskThatCannotRememberAnAttemptIsNoReasonToKeepOrRefuseTheNode(t *testing.T) {
	var log strings.Builder
	dir := t.TempDir()
	a := attempt{dir: dir, by: "a", log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := os.WriteFile(filepath.Join(dir, "given-up"), []byte("no JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.mayTry(time.Now()); err != nil || !strings.Contains(log.String(), "cannot tell whether this kubelet has failed before") {
		t.Errorf("got %v, and the log is %s", err, log.String())
	}
	a.dir = filepath.Join(dir, "gone")
	var coded *program.Exit
	if err := a.ended(agent.ErrGivesBack, time.Now()); !errors.As(err, &coded) || coded.Code != 9 || !strings.Contains(log.String(), "cannot remember whether this kubelet gave the node up") {
		t.Errorf("got %v, and the log is %s", err, log.String())
	}
	a.dir = "" // no --dynamic-config-dir
	if err := errors.Join(a.mayTry(time.Now()), a.ended(nil, time.Now())); err != nil {
		t.Error(err)
	}
}

func TestANodeIsGivenUpAfterATrialHadItsTime(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  time.Duration
	}{
		{nil, 5 * time.Minute}, {[]string{"--health-timeout=10m"}, 20 * time.Minute},
		{[]string{"--give-up-after=0"}, 0}, {[]string{"--give-up-after=3m"}, 3 * time.Minute},
	} {
		o, f := &options{}, pflag.NewFlagSet("agent", pflag.ContinueOnError)
		o.bind(f)
		if err := f.Parse(c.flags); err != nil {
			t.Fatal(err)
		}
		if err := o.check(); err != nil || o.giveUpAfter() != c.want {
			t.Errorf("%q: %s, %v, want %s", c.flags, o.giveUpAfter(), err, c.want)
		}
	}
	_, err := runs(t, "--give-up-after=2m", "--", "/not/there")
	wantUsage(t, err, "--give-up-after (2m0s) must be longer than --health-timeout (2m0s): a trial is to be rolled back first")
}
