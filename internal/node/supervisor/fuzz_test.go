// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// A child can say nothing to systemd but what it may say about itself.
func FuzzNotification(f *testing.F) {
	for _, text := range []string{"READY=1\nSTATUS=up", "WATCHDOG=1", "WATCHDOG=trigger", "MAINPID=1\nFDSTORE=1", "EXTEND_TIMEOUT_USEC=5\nEXTEND_TIMEOUT_USEC=x", "READY=0", "STATUS=a\x00b", "STOPPING=1", "\xff", "=\n==", "STATUS=a\r\nMAINPID=2"} {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		said := parseNotification(data)
		size := 0
		for _, line := range said.forward {
			name, value, _ := strings.Cut(line, "=")
			assert.That(t, slices.Contains([]string{"WATCHDOG", "EXTEND_TIMEOUT_USEC", "STATUS"}, name) && (name != "WATCHDOG" || value == "1"), "%q forwards %q", data, line)
			if size += len(line); strings.ContainsAny(line, "\n\x00") || !utf8.ValidString(line) {
				t.Errorf("%q forwards %q, which is more than a line", data, line)
			}
		}

		if size > len(data) || said.ready && !strings.Contains(string(data), "READY=1") || said.watchdog && !strings.Contains(string(data), "WATCHDOG=1") {
			t.Errorf("%q says %+v", data, said)
		}
		if line := oneLine(string(data)); strings.ContainsAny(line, "\n\x00") || !utf8.ValidString(line) {
			t.Errorf("%q is the line %q", data, line)
		}
	})
}
