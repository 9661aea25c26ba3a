// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheOOMScoreIsWrittenOrAWarningLogged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oom_score_adj")
	assert.NoError(t, os.WriteFile(path, nil, 0o600))
	log := &logBuffer{}
	protectFromOOM(path, log.logger())
	got, err := os.ReadFile(path)
	assert.That(t, err == nil && string(got) == "-999" && log.count("level") == 0, "wrote %q (%v) and logged, want -999 and nothing logged", got, err)
	protectFromOOM(t.TempDir(), log.logger())
	assert.That(t, log.count("level=WARN") == 1 && log.count("not protected from the kernel's OOM killer") == 1, "want one warning")
}

func TestOOMScoreIsSetOrAWarningLogged(t *testing.T) {
	const path = "/proc/self/oom_score_adj"
	before := assert.Value(os.ReadFile(path))(t)
	t.Cleanup(func() { _ = os.WriteFile(path, before, 0) })
	log := &logBuffer{}
	ProtectFromOOM(log.logger())
	after := assert.Value(os.ReadFile(path))(t)
	protected := strings.TrimSpace(string(after)) == "-999"
	warned := log.count("level=WARN") == 1
	assert.That(t, protected != warned, "score %q and warned: %v, want one of the two", after, warned)
}

// fakeSystemctl replaces systemctl by a script.
func fakeSystemctl(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
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
			assert.Equal(t, shuttingDown(t.Context(), t.TempDir()), want, "shutting down")
		})
	}
}

func TestNotShuttingDownIfUnknown(t *testing.T) {
	fakeSystemctl(t, "echo stopping")
	assert.That(t, !shuttingDown(t.Context(), filepath.Join(t.TempDir(), "no-systemd")), "shutting down without systemd")
	t.Setenv("PATH", t.TempDir())
	assert.That(t, !shuttingDown(t.Context(), t.TempDir()), "shutting down without systemctl")
	assert.That(t, assert.Err(os.Stat("/run/systemd/system")) == nil || !ShuttingDown(t.Context()),
		"this machine has no systemd, and is shutting down")
}

func TestShuttingDownHasATimeLimit(t *testing.T) {
	fakeSystemctl(t, "echo stopping; sleep 30") // sleep keeps the output open when the shell is killed
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	shuttingDown(ctx, t.TempDir())
	assert.That(t, ctx.Err() == nil, "the call waited for systemctl until its context ended")
	cancel()
	assert.That(t, !shuttingDown(ctx, t.TempDir()), "shutting down after the context ended")
}
