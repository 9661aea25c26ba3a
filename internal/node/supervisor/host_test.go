package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProtectFromOOMWritesTheScore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oom_score_adj")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	protectFromOOM(path, log.logger())
	if got, err := os.ReadFile(path); err != nil || string(got) != "-999" || log.count("level") != 0 {
		t.Errorf("wrote %q (%v) and logged %d lines, want -999 and none", got, err, log.count("level"))
	}
}

func TestDeniedOOMProtectionIsAWarning(t *testing.T) {
	log := &logBuffer{}
	protectFromOOM(t.TempDir(), log.logger())
	if log.count("level=WARN") != 1 || log.count("not protected from the kernel's OOM killer") != 1 {
		t.Error("want one warning")
	}
}

func TestOOMScoreIsSetOrAWarningLogged(t *testing.T) {
	const path = "/proc/self/oom_score_adj"
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(path, before, 0) })
	log := &logBuffer{}
	ProtectFromOOM(log.logger())
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	protected := strings.TrimSpace(string(after)) == "-999"
	if warned := log.count("level=WARN") == 1; protected == warned {
		t.Errorf("score %q and warned: %v, want one of the two", after, warned)
	}
}

// fakeSystemctl replaces systemctl by a script.
func fakeSystemctl(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestShuttingDownWhileSystemdIsStopping(t *testing.T) {
	for script, want := range map[string]bool{
		`[ "$*" = is-system-running ] && echo stopping; exit 1`: true,
		"echo running":             false,
		"echo degraded; exit 1":    false,
		"echo stopping soon":       false,
		"exit 1":                   false,
		"echo stopping >&2; false": false,
	} {
		t.Run(script, func(t *testing.T) {
			fakeSystemctl(t, script)
			if got := shuttingDown(t.Context(), t.TempDir()); got != want {
				t.Errorf("shutting down: %v, want %v", got, want)
			}
		})
	}
}

func TestNotShuttingDownIfUnknown(t *testing.T) {
	fakeSystemctl(t, "echo stopping")
	if shuttingDown(t.Context(), filepath.Join(t.TempDir(), "no-systemd")) {
		t.Error("shutting down without systemd")
	}
	t.Setenv("PATH", t.TempDir())
	if shuttingDown(t.Context(), t.TempDir()) {
		t.Error("shutting down without systemctl")
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil && ShuttingDown(t.Context()) {
		t.Error("this machine has no systemd, and is shutting down")
	}
}

func TestShuttingDownHasATimeLimit(t *testing.T) {
	fakeSystemctl(t, "echo stopping; sleep 30") // sleep keeps the output open when the shell is killed
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	shuttingDown(ctx, t.TempDir())
	if ctx.Err() != nil {
		t.Error("the call waited for systemctl until its context ended")
	}
	cancel()
	if shuttingDown(ctx, t.TempDir()) {
		t.Error("shutting down after the context ended")
	}
}
