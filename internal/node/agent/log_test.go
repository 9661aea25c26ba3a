// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/evenkeel/evenkeel/testkit/assert"
	"strings"
	"testing"
	"time"
)

func TestLogLinesContainUIDAndRollout(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-crasher", crasher, 1)
		w.pass(30 * time.Second)
		for _, about := range []string{"uid=uid-crasher", "namespace=evenkeel-system", "name=crasher", "rollout="} {
			for _, line := range []string{
				`msg="new answer from the source"`, `msg="kubelet started"`, `msg="the kubelet exited unexpectedly"`, "event=ConfigChanged", "event=ConfigRolledBack", "msg=ConfigOK",
			} {
				assert.That(t, w.found(line, about) != 0, "no line has %s and %s:\n%s", line, about, w.tail())
			}
		}

		if w.found(`msg="kubelet started"`, "uid=uid-good", "name=good") == 0 || w.found(`msg="kubelet started"`, `uid=""`, "name=") != 0 {
			t.Errorf("starts of the good and of the local one:\n%s", w.tail())
		}
	})
}

// found counts the log lines that contain all parts.
func (w *world) found(parts ...string) int {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	n := 0
	for _, line := range w.log.text {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			n++
		}
	}

	return n
}
