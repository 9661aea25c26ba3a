package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
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

// TestAKubeletThatMisbehavesInItsTrialIsReplaced has one node, whose kubelet misbehaves with some values of maxPods.
func TestAKubeletThatMisbehavesInItsTrialIsReplaced(t *testing.T) {
	t.Parallel()
	n := newNode(t, "misbehaves", "--config-trial-duration=1s", "--crash-loop-threshold=1", "--health-timeout=10s", "--stop-grace=1s") // a busy machine's kubelet takes some seconds
	n.wrap(`runs 'maxPods: 124' && trap '' TERM && exec sleep 1000
[ $mode != run ] && has 'maxPods: 125' && sleep 1000`)
	n.Up()
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
		if nc.Status.Active != nil || len(nc.Status.BadConfigs) > 0 || n.starts(hangs) != 0 {
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
