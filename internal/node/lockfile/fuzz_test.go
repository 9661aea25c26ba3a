// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func FuzzLocks(f *testing.F) {
	if data, err := os.ReadFile("/proc/locks"); err == nil {
		f.Add(string(data))
	}

	for _, text := range []string{
		"5: FLOCK  ADVISORY  WRITE 4711 fd:01:131078 0 EOF\n5: -> FLOCK  ADVISORY  WRITE 4712 fd:01:131078 0 EOF\n",
		"1: POSIX  ADVISORY  READ 1 00:10:1 0 EOF", "2: -> FLOCK", "3: FLOCK ADVISORY WRITE -1 fd:01:131078 0 EOF", "4: -> -> FLOCK ADVISORY WRITE 1 fd:01:131078", "", "->",
	} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		entries := parseLocks(strings.NewReader(text))
		assert.That(t, len(entries) <= strings.Count(text, "FLOCK"), "%q has %d locks", text, len(entries))
		for _, l := range entries {
			assert.That(t, l.pid >= 0 && l.file != "" && strings.Contains(text, l.file), "%q has the lock %+v", text, l)
		}

		const file = "fd:01:131078"
		if pid := holder(entries, file); pid != 0 && !slices.Contains(entries, lockEntry{pid: pid, file: file}) {
			t.Errorf("in %q, %d holds the lock", text, pid)
		}

		for _, pid := range waiters(entries, file) {
			assert.That(t, pid != os.Getpid() && slices.Contains(entries, lockEntry{waiting: true, pid: pid, file: file}), "in %q, %d waits", text, pid)
		}
	})
}
