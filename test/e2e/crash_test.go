// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// crashes makes a kubelet that crash-loops with one configuration only.
const crashes = `runs 'maxPods: 123' && exit 7`

// rolledBack is ConfigOK after a trial that failed.
func rolledBack(cm *corev1.ConfigMap, reason, lastKnownGood, how string) want {
	w := want{status: "False", reason: reason, message: "using last-known-good " + lastKnownGood, cause: fmt.Sprintf("current (UID: %s) %s", cm.UID, how)}
	w.err = w.cause
	return w
}

// verdictIsFinal waits until last-known-good was seen to do better.
func (n *node) verdictIsFinal(bad *corev1.ConfigMap) {
	n.t.Helper()
	n.Eventually("the verdict is final", func(context.Context) error {
		s := n.onDisk()
		final := slices.ContainsFunc(s.Bad, func(b trial.BadConfig) bool { return b.Revision == string(bad.UID) && !b.Provisional })
		if !final || s.Trial != nil || s.Current.Revision != string(bad.UID) {
			return fmt.Errorf("on disk: current %q, bad %+v, trial %+v", s.Current.Revision, s.Bad, s.Trial)
		}

		return nil
	})
}

// started waits for a number of starts of the kubelet with a ConfigMap.
func (n *node) started(cm *corev1.ConfigMap, times int) {
	n.t.Helper()
	n.Eventually(fmt.Sprintf("the kubelet was started %d times with %s", times, cm.Name), func(context.Context) error {
		if got := n.starts(cm); got != times {
			return fmt.Errorf("%d times", got)
		}

		return nil
	})
}

// TestAKubeletThatMisbehavesInItsTrialIsReplaced has one node, whose kubelet
// misbehaves with some values of maxPods.
func TestAKubeletThatMisbehavesInItsTrialIsReplaced(t *testing.T) {
	t.Parallel()
	n := newNode(t, "misbehaves", "--config-trial-duration=1s", "--crash-loop-threshold=1", "--health-timeout=10s", "--stop-grace=1s") // a busy machine's kubelet takes some seconds
	n.wrap(`runs 'maxPods: 121' && exit 7
runs 'maxPods: 122' && exit 0
runs 'maxPods: 123' && exec sleep 1000
runs 'maxPods: 124' && trap '' TERM && exec sleep 1000
[ $mode != run ] && has 'maxPods: 125' && sleep 1000`)
	n.Up()
	for i, c := range []struct {
		name, reason, how string
		starts            int
	}{
		{"it exits", "CrashLooped", "crash-looped: 2 starts in its trial, last: exit status 7", 2},
		{"it exits with status zero", "CrashLooped", "crash-looped: 2 starts in its trial, last: exit status 0", 2},
		{"it is never healthy", "NotHealthy", "was not healthy for 10s", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			bad := n.assignNew(fmt.Sprint("bad-", i), map[string]any{"maxPods": 121 + i})
			w := rolledBack(bad, c.reason, "(init)", c.how)
			nc := n.is(w)
			n.healthyWith(nil)
			if nc.Status.Active != nil || nc.Status.LastKnownGood != nil || nc.Status.Trial != nil || nc.Status.BadConfigs[0].UID != bad.UID || nc.Status.BadConfigs[0].Reason != w.err {
				t.Errorf("active %+v, last-known-good %+v, trial %+v, bad %+v", nc.Status.Active, nc.Status.LastKnownGood, nc.Status.Trial, nc.Status.BadConfigs)
			}

			n.Event("Warning", "ConfigRolledBack", w.cause+"; going back to last-known-good (init)")
			n.verdictIsFinal(bad)
			out, code := n.Run(t.Context(), "", "status", "--dynamic-config-dir="+n.Dir)
			assert.That(t, code == 0 && strings.Contains(out, "the local configuration") && strings.Contains(out, w.message+": "+w.cause),
				"status: exit code %d:\n%s", code, out)
			assert.Equal(t, n.starts(bad), c.starts, "the kubelet was started")
		})
	}

	n.wantSample(`evenkeel_rollbacks_total{reason="CrashLooped"}`, 2)
	n.wantSample(`evenkeel_rollbacks_total{reason="NotHealthy"}`, 1)
	t.Run("it ignores SIGTERM", func(t *testing.T) {
		n := n.in(t)
		stubborn := n.assignNew("stubborn", map[string]any{"maxPods": 124})
		n.started(stubborn, 1)
		good := n.ConfigMap("good", map[string]any{"maxPods": 130})
		n.AssignMap(good) // a new target during the trial of an unhealthy kubelet
		n.is(allChecksPassed(good))
		n.healthyWith(good)
		n.logged(`msg="kubelet stopped for a change"`, `exit="signal: killed"`)
		n.LastKnownGood(good)

		n.AssignMap(stubborn)
		n.started(stubborn, 2)
		var children []int
		n.Eventually("the kubelet is the agent's only child", func(context.Context) (err error) { // a dry run may still be running
			if children, err = n.Children(); err == nil && len(children) != 1 {
				err = fmt.Errorf("the children are %v", children)
			}

			return err
		})
		kubelet := n.watchProcess(children[0])
		n.stop()
		n.exitsWith(0)
		kubelet.gone(0)
		n.start()
		n.AssignMap(good)
		n.is(allChecksPassed(good))
	})
	t.Run("its dry run hangs", func(t *testing.T) {
		n := n.in(t)
		n.AssignMap(nil)
		n.is(localInit)
		undisturbed := n.Steady()
		hangs := n.assignNew("hangs", map[string]any{"maxPods": 125})
		cause := fmt.Sprintf("could not validate current (UID: %s): the dry run of the kubelet: it did not exit within 15s and was killed", hangs.UID)
		nc := n.is(want{"Unknown", "CouldNotValidate", "using last-known-good (init)", cause, cause})
		if nc.Status.Active != nil || nc.Status.BadConfigs[0].UID == hangs.UID || n.starts(hangs) != 0 {
			t.Errorf("active %+v, bad %+v, %d starts", nc.Status.Active, nc.Status.BadConfigs, n.starts(hangs))
		}

		undisturbed.End(t)
		left, err := filepath.Glob(filepath.Join(n.Node.Dir(), "run-evenkeel", "dry-run", "dryrun-*"))
		assert.That(t, err == nil && len(left) == 0, "the dry run left %v, %v", left, err)
		n.wrap("") // repaired: another kubelet may judge otherwise
		n.is(allChecksPassed(hangs))
		n.LastKnownGood(hangs)
	})
}

// crashesWith makes a kubelet that crashes with what $dir/crashing lists.
const crashesWith = `[ $mode = run ] && grep -qxf "$dir/crashing" "$config" && exit 9`

func (n *node) crashing(lines ...string) {
	n.t.Helper()
	assert.NoError(n.t, os.WriteFile(n.beside("crashing"), []byte(strings.Join(lines, "\n")), 0o644))
}

// deadEnd is ConfigOK while last-known-good crashes too.
func deadEnd(lastKnownGood, exit string) want {
	w := want{status: "False", reason: "DeadEnd", message: "using last-known-good " + lastKnownGood, cause: lastKnownGood + " keeps failing and there is nothing to fall back to"}
	w.err = w.cause + ": " + exit
	return w
}

func TestIfLastKnownGoodCrashesTooTheVerdictIsWithdrawnAndForgetRepairsADeadEnd(t *testing.T) {
	t.Parallel()
	n := newNode(t, "deadend", "--config-trial-duration=1s", "--crash-loop-threshold=0")
	n.wrap(crashesWith)
	n.crashing()
	n.Up()
	n.crashing("kind: KubeletConfiguration") // whatever the configuration: the node is broken
	good := n.assignNew("good", map[string]any{"maxPods": 121})
	n.is(deadEnd("(init)", "exit status 9"))
	n.Event("Warning", "ConfigRolledBack", fmt.Sprintf("current (UID: %s) crash-looped", good.UID))
	n.Event("Warning", "Inconclusive", fmt.Sprintf("last-known-good (init) fails too: the verdict on (UID: %s) is withdrawn", good.UID))
	if s := n.onDisk(); len(s.Bad) != 0 || s.Trial == nil || s.Trial.Fallback != trial.Inconclusive {
		t.Errorf("on disk bad are %+v, trial %+v", s.Bad, s.Trial)
	}

	n.crashing("maxPods: 123")
	n.is(allChecksPassed(good))
	n.Event("Normal", "TrialResumed", fmt.Sprintf("last-known-good (init) is healthy: the trial of current (UID: %s) continues", good.UID))
	n.LastKnownGood(good)

	bad := n.assignNew("bad", map[string]any{"maxPods": 123})
	lkg := fmt.Sprintf("(UID: %s)", good.UID)
	n.is(rolledBack(bad, "CrashLooped", lkg, "crash-looped: 1 start in its trial, last: exit status 9"))
	n.healthyWith(good)
	n.verdictIsFinal(bad)
	n.crashing("maxPods: 121") // the last-known-good configuration now fails as well
	n.kill(n.RunningPID())
	n.is(deadEnd(lkg, "exit status 9"))
	n.Event("Warning", "DeadEnd", lkg+" keeps failing and there is nothing to fall back to")
	before := n.starts(good)
	n.Eventually("it is tried on", func(context.Context) error {
		if now := n.starts(good); now < before+2 {
			return fmt.Errorf("%d starts, then %d", before, now)
		}

		return nil
	})
	out, code := n.Run(t.Context(), "", "forget", string(bad.UID), "--dynamic-config-dir="+n.Dir)
	assert.That(t, code == 0 && strings.Contains(out, fmt.Sprintf("the running agent was asked to forget that %s is bad", bad.UID)),
		"forget: exit code %d: %s", code, out)
	n.is(allChecksPassed(bad))
	n.Event("Normal", "Forgotten", fmt.Sprintf("(UID: %s) is no longer marked as bad: an operator requested it", bad.UID))
	n.LastKnownGood(bad)
}
