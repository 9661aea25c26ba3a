// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestProbeTakesASocket(t *testing.T) {
	t.Setenv("EVENKEEL_PROBE_SOCKET", "")
	_, err := runs(t, "probe")
	wantUsage(t, err, "--socket is missing, and EVENKEEL_PROBE_SOCKET is not set: use the agent's --probe-socket")
	socket := filepath.Join(t.TempDir(), "probe.sock")
	t.Setenv("EVENKEEL_PROBE_SOCKET", socket)
	if _, err := runs(t, "probe"); err == nil || !strings.HasPrefix(err.Error(), "no agent answers on "+socket+": ") {
		t.Errorf("with the variable: %v", err)
	}

	_, err = runs(t, "probe", "--socket=/s", "more")
	wantUsage(t, err, "evenkeel-agent probe takes no arguments")
}
