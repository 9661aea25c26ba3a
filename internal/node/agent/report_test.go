// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestConfigOKIsWrittenBeforeAConfigurationOnTrialIsStarted(t *testing.T) {
	forEach(t, inStartedWorld, map[time.Duration]bool{
		130 * time.Millisecond: true, time.Hour: false, // the start does not wait as long
	}, func(w *world, takes time.Duration, written bool) {
		w.reporter.takes = takes
		var got []bool // whether the report was written, for each start of the kubelet
		w.kubelet.set(func(*kubeletState) {
			w.kubelet.onStart = func(string) { got = append(got, !w.reporter.pending()) }
		})
		w.adopts("uid-good", good)
		w.restart()
		w.runs("good")
		want := []bool{written, written}
		assert.That(w.t, slices.Equal(got, want), "the reports were written before the starts: %v, want %v", got, want)
	})
}

func TestNoOtherStartWaitsForAReport(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.reporter.takes = time.Hour
		atOnce := func(what string, starts func()) {
			t.Helper()
			w.reporter.flushes = 0
			starts()
			assert.Equal(t, w.reporter.flushes, 0, what, "waits for reports")
		}
		again := func() {
			w.restart()
			w.runs("good")
		}
		atOnce("the local configuration", func() { w.crashes("") })
		w.adopts("uid-good", good)
		atOnce("a start after a crash", func() { w.crashes("good") })
		w.apiUp(false)
		atOnce("a start while the API server is silent", again)
		w.apiUp(true)
		w.promoted("uid-good")
		atOnce("a proven configuration", again)
		w.assign("uid-crasher", crasher)
		w.untilStarts(7)
		atOnce("a rollback", func() { w.runs("good") })
	})
}

func TestLogLinesContainUIDAndRollout(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-crasher", crasher, 1)
		w.pass(30 * time.Second)
		for _, about := range []string{"uid=uid-crasher", "namespace=evenkeel-system", "name=crasher", "rollout="} {
			for _, line := range []string{
				`msg="new answer from the source"`, `msg="kubelet started"`, `msg="the kubelet exited unexpectedly"`, "event=ConfigChanged", "event=ConfigRolledBack", "msg=ConfigOK",
			} {
				assert.That(t, w.log.count(line, about) != 0, "no line has %s and %s:\n%s", line, about, w.tail())
			}
		}

		assert.That(t, w.log.count(`msg="kubelet started"`, "uid=uid-good", "name=good") > 0, "the start of the good one:\n%s", w.tail())
		assert.Equal(t, w.log.count(`msg="kubelet started"`, `uid=""`, "name="), 0, "starts of the local one with a name")
	})
}

// TestReportsNameNothingOfAForeignConfigMap assigns a ConfigMap of kube-system
// in each way in which a report quotes a configuration: what the dry run and a
// guard say about it, how it cannot be decoded, and what the kubelet logs with
// it.
func TestReportsNameNothingOfAForeignConfigMap(t *testing.T) {
	const secret = "10.7.7.7"
	type foreign struct {
		conf   conf
		data   map[string]string
		reason string
	}
	forEach(t, with(protecting), map[string]foreign{
		"rejected":    {conf{name: "a", rejected: "clusterDNS: Invalid value: " + secret}, nil, "ValidationFailed"},
		"protected":   {conf{name: "a", readOnlyPort: 10777}, nil, "ProtectedFields"},
		"not decoded": {conf{name: "a"}, map[string]string{secret: "x"}, "ValidationFailed"},
		"crashing":    {conf{name: "a", crashes: time.Second}, nil, "CrashLooped"},
	}, func(w *world, _ string, tt foreign) {
		w.kubelet.set(func(s *kubeletState) { s.lastErrors = "no route to " + secret })
		cm := configMap("uid-a", tt.conf)
		cm.Namespace = "kube-system"
		if tt.data != nil {
			cm.Data = tt.data
		}

		w.behaves(tt.conf)
		w.names["uid-a"] = "a"
		w.assignObject(cm)
		w.pass(10 * time.Minute)
		s := w.status()
		assert.That(w.t, s.Conditions[0].Reason == tt.reason && strings.Contains(s.Error, withheld), "the status is %+v", s)
		told := w.reporter.get()
		text := string(assert.Value(json.Marshal(told.reports))(w.t)) + strings.Join(told.events, "; ")
		for _, words := range []string{secret, "10777"} {
			assert.That(w.t, !strings.Contains(text, words), "%s was reported: %s", words, text)
		}

		assert.That(w.t, w.log.count("10777")+w.log.count(secret) != 0, "the log does not say what is wrong")
	})
}
