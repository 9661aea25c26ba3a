// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestConfigOKIsWrittenBeforeAConfigurationOnTrialIsStarted(t *testing.T) {
	for _, written := range []bool{true, false} {
		inStartedWorld(t, func(w *world) {
			w.reporter.takes = 130 * time.Millisecond
			if !written {
				w.reporter.takes = time.Hour // the start does not wait as long
			}

			var got []bool // whether the report was written, for each start of the kubelet
			w.kubelet.set(func(*kubeletState) {
				w.kubelet.onStart = func(string) { got = append(got, !w.reporter.pending()) }
			})
			w.assign("uid-good", good)
			w.runs("good")
			w.stop()
			w.start()
			w.runs("good")
			want := []bool{written, written}
			assert.That(t, slices.Equal(got, want), "the reports were written before the starts: %v, want %v", got, want)
		})
	}
}

func TestNoOtherStartWaitsForAReport(t *testing.T) {
	restart := func(w *world) {
		w.stop() // which waits for nothing
		w.reporter.flushes = 0
		w.start()
		w.runs("good")
	}
	for name, play := range map[string]func(w *world){
		"of the local configuration": func(w *world) { w.dies(exitOne); w.runs("") },
		"of a proven configuration": func(w *world) {
			withGood(w)
			restart(w)
		},
		"after a crash": func(w *world) {
			w.assign("uid-good", good)
			w.runs("good")
			w.reporter.flushes = 0
			w.dies(exitOne)
			w.runs("good")
		},
		"of a rollback": func(w *world) {
			w.assign("uid-crasher", crasher)
			w.until("it runs", func() bool { return len(w.kubelet.get().starts) == 2 })
			w.reporter.flushes = 0
			w.runs("")
		},
		"while the API server is silent": func(w *world) {
			w.assign("uid-good", good)
			w.runs("good")
			w.apiUp(false)
			restart(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inStartedWorld(t, func(w *world) {
				w.reporter.takes = time.Hour
				play(w)
				assert.Equal(t, w.reporter.flushes, 0, "it waited for reports")
			})
		})
	}
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
	for name, tt := range map[string]struct {
		conf   conf
		data   map[string]string
		reason string
	}{
		"rejected":    {conf{name: "a", rejected: "clusterDNS: Invalid value: " + secret}, nil, "ValidationFailed"},
		"protected":   {conf{name: "a", readOnlyPort: 10777}, nil, "ProtectedFields"},
		"not decoded": {conf{name: "a"}, map[string]string{secret: "x"}, "ValidationFailed"},
		"crashing":    {conf{name: "a", crashes: time.Second}, nil, "CrashLooped"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorldWith(t, protecting, func(w *world) {
				w.kubelet.set(func(s *kubeletState) { s.lastErrors = "no route to " + secret })
				cm := configMap("uid-a", tt.conf)
				cm.Namespace = "kube-system"
				if tt.data != nil {
					cm.Data = tt.data
				}

				w.kubelet.set(func(s *kubeletState) { s.confs["a"] = tt.conf })
				w.names["uid-a"] = "a"
				w.assignObject(cm)
				w.pass(10 * time.Minute)
				s := w.status()
				assert.That(t, s.Conditions[0].Reason == tt.reason && strings.Contains(s.Error, withheld), "the status is %+v", s)
				for _, told := range w.reporter.get().reports {
					text := fmt.Sprintf("%+v %+v %+v", told.Status, told.Condition, told.Configured)
					assert.That(t, !strings.Contains(text, secret) && !strings.Contains(text, "10777"), "%s", text)
				}

				for _, e := range w.reporter.get().events {
					assert.That(t, !strings.Contains(e, secret) && !strings.Contains(e, "10777"), "the Event %s", e)
				}
				n := w.log.count("10777") + w.log.count(secret)
				assert.That(t, n != 0, "the log does not say what is wrong")
			})
		})
	}
}
