// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

const goodFile = dir + "/checkpoints/uid-good"

func TestCorruptCheckpointOfCurrentIsDownloadedAgain(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-better", better)
		w.promoted("uid-better")
		w.assign("uid-third", conf{name: "third"})
		w.runs("third")
		w.stop()
		w.disk.Plant(dir+"/checkpoints/uid-third", []byte("garbage"))
		w.apiUp(false)
		w.start()
		w.runs("better")
		w.pass(time.Minute)
		w.wantStarts("", "good", "better", "third", "better")
		ok := w.configOK()
		assert.That(t, strings.HasPrefix(ok, "Unknown | using last-known-good (UID: uid-better): failed to sync, desired config unclear, cause: "),
			"%s", ok)
		n := len(w.reporter.all())
		assert.That(t, n <= 20, "%d different reports", n)
		w.apiUp(true)
		w.runs("third")
		w.wantConfigOK("True | using current (UID: uid-third): all checks passed (AllChecksPassed)")
		w.promoted("uid-third")
		_, err := w.disk.ReadFile(dir + "/checkpoints/uid-third.corrupt")
		assert.That(t, err == nil, "the corrupt file was not kept: %v", err)
	})
}

// Whether this agent downloaded it, or an agent before.
func TestMissingCheckpointMattersAtTheNextStartOnly(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		inGoodWorld(t, func(w *world) {
			if restarted {
				w.restart()
				w.runs("good")
			}

			starts := len(w.kubelet.get().starts)
			assert.NoError(t, w.disk.Remove(goodFile))
			w.pass(5 * time.Second)
			got := len(w.kubelet.get().starts) - starts
			assert.That(t, got <= 0, "%d starts while it runs", got)
			w.dies(exitOne)
			w.pass(5 * time.Second)
			w.runs("good")
			w.wantConfigOK("True | using current (UID: uid-good): all checks passed (AllChecksPassed)")
			got = len(w.kubelet.get().starts) - starts
			assert.That(t, got <= 2, "%d starts: %q", got, w.kubelet.get().starts)
		})
	}
}

// The object's metadata have changed since, and therefore the file's digest.
func TestRollbackUsesACheckpointDownloadedAgain(t *testing.T) {
	again := configMap("uid-good", good)
	again.ResourceVersion = "8"
	for name, lose := range map[string]func(w *world){
		"damaged at the start of the agent": func(w *world) {
			w.stop()
			w.disk.Plant(goodFile, []byte("garbage"))
			w.api.set(func(api *simAPI) { api.object = again })
			w.start()
		},
		"missing when it is assigned again": func(w *world) {
			w.assign("uid-better", better)
			w.runs("better")
			assert.NoError(t, w.disk.Remove(goodFile))
			w.assignObject(again)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inGoodWorld(t, func(w *world) {
				lose(w)
				w.runs("good")
				kept, _ := w.disk.ReadFile(goodFile + ".corrupt")
				w.assign("uid-crasher", crasher)
				w.pass(20 * time.Second)
				w.runs("good")
				w.wantConfigOK("False | using last-known-good (UID: uid-good): current (UID: uid-crasher) crash-looped: 3 starts in its trial, last: exit status 1 (CrashLooped)")
				now, _ := w.disk.ReadFile(goodFile + ".corrupt")
				assert.That(t, string(now) == string(kept), "the good file was set aside")
			})
		})
	}
}

func TestCorruptRecordIsReportedSetAsideAndWrittenAgain(t *testing.T) {
	for record, runs := range map[string]string{"current": "good", "last-known-good": "better", "v1.36.3/trial": "better", "v1.36.3/startups": "better", "v1.36.3/bad-configs": "better"} {
		t.Run(record, func(t *testing.T) {
			inGoodWorld(t, func(w *world) {
				w.assign("uid-better", better)
				w.runs("better")
				w.stop()
				w.disk.Plant(dir+"/"+record, []byte("{"))
				w.apiUp(false)
				w.start()
				w.runs(runs)
				w.pass(time.Second)
				w.wantEvent("Warning StateProblem: " + record + ": corrupt")
				data, err := w.disk.ReadFile(dir + "/" + record)
				assert.That(t, err == nil && strings.Contains(string(data), "apiVersion"), "it was not written anew: %q, %v", data, err)
				assert.That(t, !w.view().LastKnownGood.IsLocal(), "last-known-good is forgotten")
			})
		})
	}
}

func TestAssignmentIsNotAdoptedUntilItCanBeSaved(t *testing.T) {
	for _, op := range []crashfs.Op{crashfs.Rename, crashfs.Create, crashfs.Write} {
		t.Run(string(op), func(t *testing.T) {
			inGoodWorld(t, func(w *world) {
				w.disk.FailFrom(1, syscall.ENOSPC, op)
				w.assign("uid-better", better)
				w.pass(time.Minute)
				w.wantStarts("", "good")
				ok := w.configOK()
				if !strings.HasPrefix(ok, "Unknown | using current (UID: uid-good): failed to sync, desired config unclear, cause: cannot save ConfigMap evenkeel-system/better: ") ||
					!strings.Contains(ok, "no space left on device") {
					t.Error(ok)
				}

				said := len(w.reporter.all())
				w.pass(10 * time.Minute)
				n := len(w.reporter.all())
				assert.That(t, n == said, "%d more reports in 10 minutes, such as %s", n-said, w.configOK())
				w.disk.Heal()
				w.pass(12 * time.Second)
				w.runs("better")
				w.promoted("uid-better")
			})
		})
	}
}

func TestVerdictIsNotWithdrawnUntilItCanBeSaved(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-typo", typo)
		w.pass(20 * time.Second)
		w.disk.FailRead(dir+"/current", syscall.EIO) // what cannot be read is not replaced
		w.assign("uid-again", typo, 1)               // the same content
		w.pass(time.Minute)
		v, s := w.view(), w.status()
		assert.That(t, len(v.Bad) == 1 && v.Bad[0].Revision == "uid-typo" && s.Conditions[0].Reason == "SyncFailed",
			"bad %+v, status %+v", v.Bad, s)
		w.disk.Heal()
		w.pass(30 * time.Second)
		if v, s := w.view(), w.status(); len(v.Bad) != 1 || v.Bad[0].Revision != "uid-again" || s.Conditions[0].Reason != "ValidationFailed" {
			t.Errorf("bad %+v, status %+v", v.Bad, s)
		}

		w.wantStarts("", "good")
	})
}

func TestARollbackNeedsNoDisk(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-crasher", crasher)
		w.runs("crasher")
		w.disk.FailFrom(1, syscall.EROFS)
		w.pass(20 * time.Second)
		w.wantStarts("", "good", "crasher", "crasher", "crasher", "good")
		s := w.status()
		assert.That(t, len(s.BadConfigs) == 1 && s.Conditions[0].Reason == "CrashLooped", "%+v", s)
		w.disk.Heal()
		w.pass(15 * time.Second)
		v := w.view()
		assert.That(t, len(v.Bad) == 1 && v.Bad[0].Revision == "uid-crasher", "saved as bad: %+v", v.Bad)
	})
}

func TestFailedRenderKeepsTheRunningKubelet(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.disk.FailFrom(1, syscall.ENOSPC, crashfs.Mkdir) // records can be replaced
		w.assign("uid-better", better)
		w.pass(20 * time.Second)
		w.wantStarts("", "good")
		ok := w.configOK()
		assert.That(t, strings.HasPrefix(ok, "Unknown | using last-known-good (UID: uid-good): ") && strings.Contains(ok, "render uid-better: "),
			"%s", ok)
		w.dies(exitOne) // what was rendered before need not be again
		w.runs("good")
		w.disk.Heal()
		w.pass(time.Minute)
		w.runs("better")
	})
}

func TestForgetRequestIsCarriedOutOnceEvenIfItCannotBeRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		withBad(w)
		w.disk.FailFrom(3, syscall.EIO, crashfs.Remove)
		w.forget("uid-crasher")
		w.pass(15 * time.Second)
		w.runs("crasher")
		w.promoted("uid-crasher")
		w.wantLogged("event=Forgotten", 1)
		w.wantLogged("cannot remove a completed request", 1)
		w.disk.Heal()
		w.pass(15 * time.Second)
		requests, err := w.agent.disk.store.ForgetRequests()
		assert.That(t, err == nil && len(requests) == 0, "%q, %v", requests, err)
	})
}

func TestForgetRequestThatCannotBeSavedStays(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-better", better)
		w.pass(5 * time.Second)
		w.runs("better")
		w.forget("uid-better") // on trial: its end withdraws no verdict
		w.disk.FailFrom(1, syscall.ENOSPC, crashfs.Create, crashfs.Write)
		w.pass(15 * time.Second)
		requests, err := w.agent.disk.store.ForgetRequests()
		assert.That(t, err == nil && len(requests) == 1, "%q, %v", requests, err)
		w.disk.Heal()
		w.pass(15 * time.Second)
		if requests, err := w.agent.disk.store.ForgetRequests(); err != nil || len(requests) > 0 {
			t.Errorf("%q, %v", requests, err)
		}
	})
}

// The proposal's repair of a dead end is to edit the file.
func TestEntryRemovedByHandFromBadConfigsIsTriedAgainByTheRunningAgent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		withBad(w)
		w.disk.Plant(dir+"/v1.36.3/bad-configs", []byte(`{"apiVersion":"state.evenkeel.dev/v1","kind":"BadConfigs","content":[]}`))
		w.pass(15 * time.Second)
		w.runs("crasher")
		w.promoted("uid-crasher")
		w.wantLogged("event=Forgotten", 1)
		v := w.view()
		assert.That(t, len(v.Bad) == 0, "the entry is back: %+v", v.Bad)
	})
}

func TestAFailureFallsBackToLocalIfLastKnownGoodWasEmptied(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.stop()
		w.disk.Plant(dir+"/last-known-good", nil)
		w.start()
		w.runs("good") // which is current
		w.assign("uid-crasher", crasher, 1)
		w.pass(30 * time.Second)
		w.runs("")
		w.wantEvent("Warning ConfigRolledBack: current (UID: uid-crasher) crash-looped")
	})
}

func TestRunReturnsWhyTheDirectoryCannotBeOpened(t *testing.T) {
	inWorld(t, func(w *world) {
		w.openErr = errors.New("/var/lib/evenkeel belongs to user 1000")
		w.start()
		w.pass(time.Second)
		w.stop()
		assert.That(t, w.err != nil && w.err.Error() == "open the dynamic configuration directory: /var/lib/evenkeel belongs to user 1000",
			"it ended with %v", w.err)
		w.wantStarts()
	})
}

func TestWithoutDynamicConfigurationLocalRunsAndNothingIsSaved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = func(o *Options) { o.OpenStore, o.Remote = nil, "Disabled" }
		w.assign("uid-good", good)
		w.start()
		w.runs("")
		w.pass(time.Minute)
		w.wantStarts("")
		w.wantConfigOK("True | using current (init): current is set to the local default, and an init config was provided (LocalInit)")
		s := w.status()
		assert.That(t, s.RemoteConfig == "Disabled" && s.Assigned == nil, "%+v", s)
		assert.That(t, w.disk.Operations() <= 0, "%q", w.disk.Log())
	})
}

func TestInvalidLocalConfigEndsTheAgentBeforeAStart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{rejected: "maxPods must not be negative"} })
		w.start()
		w.pass(time.Second)
		w.stop()
		assert.That(t, errors.Is(w.err, ErrLocalInvalid) && strings.Contains(w.err.Error(), "maxPods must not be negative"),
			"it ended with %v", w.err)
		w.wantStarts()
		assert.That(t, w.init.get().stopping == 1, "the init system was not told")
	})
}

// If a configuration cannot be rendered, another download does not help.
func TestFailedRenderCausesNoRepeatedDownload(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) {
			s.filesErr = errors.New("the node's own drop-in directory /etc/x: there are more than 1000 files")
		})
		w.dies(exitOne)
		w.runs("")
		w.wantConfigOK("Unknown | using (init): failed to sync, desired config unclear, cause: the node's own drop-in directory /etc/x: there are more than 1000 files (SyncFailed)")
		w.pass(10 * time.Minute)
		w.wantStarts("", "good", "")
		assert.Equal(t, w.source.asked(), 0, "downloads")
		w.kubelet.set(func(s *kubeletState) { s.filesErr = nil })
		w.runs("good")
	})
}

func TestACorruptCheckpointThatTheSourceFindsIsReportedByTheLoop(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.stop()
		w.disk.Plant(dir+"/checkpoints/uid-good", []byte("rot"))
		w.start()
		w.runs("good")
		w.wantEvent("Warning StateProblem: configuration uid-good: the checkpoint is corrupt")
	})
}
