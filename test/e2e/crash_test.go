package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// crashes makes a kubelet that crash-loops with one configuration only.
const crashes = `runs 'maxPods: 123' && exit 7`

func TestACrashLoopRollsBackAfterThresholdPlusOneStarts(t *testing.T) {
	t.Parallel()
	for _, threshold := range []int{0, 3} {
		t.Run(fmt.Sprintf("threshold %d", threshold), func(t *testing.T) {
			n := newNode(t, fmt.Sprintf("crash-%d", threshold), "--config-trial-duration=1s", fmt.Sprintf("--crash-loop-threshold=%d", threshold))
			n.wrap(crashes)
			n.up()
			bad := n.configMap("bad", map[string]any{"maxPods": 123})
			n.assign(bad)
			how := fmt.Sprintf("crash-looped: %s in its trial, last: exit status 7", printable.Count(threshold+1, "start"))
			w := rolledBack(bad, "CrashLooped", "(init)", how)
			nc := n.is(w)
			n.healthyWith(nil)
			if got := n.starts(bad); got != threshold+1 {
				t.Errorf("the kubelet was started %d times with it, want %d", got, threshold+1)
			}

			st := nc.Status
			if st.Active != nil || st.LastKnownGood != nil || st.Assigned == nil || st.Assigned.UID != bad.UID || st.Trial != nil {
				t.Errorf("assigned %+v, active %+v, last-known-good %+v, trial %+v", st.Assigned, st.Active, st.LastKnownGood, st.Trial)
			}
			if len(st.BadConfigs) != 1 || st.BadConfigs[0].UID != bad.UID || st.BadConfigs[0].Reason != w.err {
				t.Errorf("bad are %+v, want %q", st.BadConfigs, w.err)
			}
			n.event("Warning", "ConfigRolledBack", w.cause+"; going back to last-known-good (init)")
			n.wantSample(`evenkeel_rollbacks_total{reason="CrashLooped"}`, 1)
			n.wantSample(`evenkeel_kubelet_starts_total{cause="change"}`, 1)
			n.wantSample(`evenkeel_kubelet_starts_total{cause="crash"}`, float64(threshold))
			n.wantSample(`evenkeel_kubelet_starts_total{cause="rollback"}`, 1)
			n.wantSample(`evenkeel_node_config_error`, 1)
			n.verdictIsFinal(bad)
			out, code := n.Run(t.Context(), "", "status", "--dynamic-config-dir="+n.Dir)
			if code != 0 || !strings.Contains(out, "the local configuration") || !strings.Contains(out, w.message+": "+w.cause) {
				t.Errorf("status: exit code %d:\n%s", code, out)
			}

			good := n.configMap("good", map[string]any{"maxPods": 124})
			n.assign(good)
			n.is(allChecksPassed(good))
			n.lastKnownGood(good)
			n.assign(bad)
			n.is(rolledBack(bad, "CrashLooped", fmt.Sprintf("(UID: %s)", good.UID), how))
			if got := n.starts(bad); got != threshold+1 {
				t.Errorf("known to be bad, it was started again: %d times", got)
			}
			n.healthyWith(good)
		})
	}
}

// rolledBack is ConfigOK after a trial that failed.
func rolledBack(cm *corev1.ConfigMap, reason, lastKnownGood, how string) want {
	w := want{status: "False", reason: reason, message: "using last-known-good " + lastKnownGood, cause: fmt.Sprintf("current (UID: %s) %s", cm.UID, how)}
	w.err = w.cause
	return w
}

// verdictIsFinal waits until last-known-good was seen to do better.
func (n *node) verdictIsFinal(bad *corev1.ConfigMap) {
	n.t.Helper()
	n.eventually("the verdict is final", func(context.Context) error {
		s := n.onDisk()
		if len(s.Bad) != 1 || s.Bad[0].Revision != string(bad.UID) || s.Bad[0].Provisional || s.Trial != nil || s.Current.Revision != string(bad.UID) {
			return fmt.Errorf("on disk: current %q, bad %+v, trial %+v", s.Current.Revision, s.Bad, s.Trial)
		}
		return nil
	})
}

func TestAnExitWithStatusZeroIsACrashToo(t *testing.T) {
	t.Parallel()
	n := newNode(t, "zero", "--config-trial-duration=1s", "--crash-loop-threshold=1")
	n.wrap(`runs 'maxPods: 123' && exit 0`)
	n.up()
	bad := n.configMap("bad", map[string]any{"maxPods": 123})
	n.assign(bad)
	n.is(rolledBack(bad, "CrashLooped", "(init)", "crash-looped: 2 starts in its trial, last: exit status 0"))
	n.healthyWith(nil)
}

func TestAKubeletThatIsNeverHealthyRollsBack(t *testing.T) {
	t.Parallel()
	n := newNode(t, "unhealthy", "--config-trial-duration=1s", "--health-timeout=10s") // a busy machine's kubelet takes some seconds
	n.wrap(`runs 'maxPods: 123' && exec sleep 1000`)
	n.up()
	bad := n.configMap("bad", map[string]any{"maxPods": 123})
	n.assign(bad)
	w := rolledBack(bad, "NotHealthy", "(init)", "was not healthy for 10s")
	n.is(w)
	n.healthyWith(nil)
	n.event("Warning", "ConfigRolledBack", w.cause)
	n.verdictIsFinal(bad)
	n.wantSample(`evenkeel_rollbacks_total{reason="NotHealthy"}`, 1)
	if got := n.starts(bad); got != 1 {
		t.Errorf("it was started %d times", got)
	}
}

func TestAHealthyKubeletWhoseNodeIsNotReadyRollsBack(t *testing.T) {
	t.Parallel()
	const unreachable = `
apiVersion: v1
kind: Config
current-context: nowhere
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
`
	for name, script := range map[string]string{
		"lease": `runs 'maxPods: 123' && exec "$real" "$@" --kubeconfig="$dir/unreachable"`, // the Node stays Ready, the Lease is never renewed
		"network": `net="$dir/../cni/10-bridge.conflist" kept="$dir/10-bridge.conflist"
if runs 'maxPods: 123'; then cp "$net" "$kept" && rm "$net"
elif [ $mode = run ] && [ -e "$kept" ]; then cp "$kept" "$net"; fi`, // the runtime says that it has no network
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "notready-"+name, "--config-trial-duration=30s", "--ready-timeout=5s")
			n.wrap(script)
			if err := os.WriteFile(n.beside("unreachable"), []byte(unreachable), 0o600); err != nil {
				t.Fatal(err)
			}
			n.up()
			bad := n.configMap("bad", map[string]any{"maxPods": 123})
			n.assign(bad)
			n.healthyWith(bad)
			w := rolledBack(bad, "NotReady", "(init)", "left the node not ready for 5s")
			n.is(w)
			n.event("Warning", "ConfigRolledBack", w.cause)
			n.wantSample(`evenkeel_rollbacks_total{reason="NotReady"}`, 1)
			n.healthyWith(nil)
			n.verdictIsFinal(bad) // not before the node is Ready again
			n.is(w)
		})
	}
}

func TestAKubeletThatIgnoresSIGTERMIsKilledAfterItsGrace(t *testing.T) {
	t.Parallel()
	n := newNode(t, "stubborn", "--stop-grace=1s", "--config-trial-duration=1s")
	n.wrap(`runs 'maxPods: 123' && trap '' TERM && exec sleep 1000`)
	n.up()
	stubborn := n.configMap("stubborn", map[string]any{"maxPods": 123})
	n.assign(stubborn)
	n.eventually("it was started", func(context.Context) error {
		if n.starts(stubborn) != 1 {
			return fmt.Errorf("%d times", n.starts(stubborn))
		}
		return nil
	})
	good := n.configMap("good", map[string]any{"maxPods": 124})
	n.assign(good) // a new target during the trial of an unhealthy kubelet
	n.is(allChecksPassed(good))
	n.healthyWith(good)
	n.logged(`msg="kubelet stopped for a change"`, `exit="signal: killed"`)
	n.lastKnownGood(good)

	n.assign(stubborn)
	n.eventually("it was started again", func(context.Context) error {
		if n.starts(stubborn) != 2 {
			return fmt.Errorf("%d times", n.starts(stubborn))
		}
		return nil
	})
	var children []int
	n.eventually("the kubelet is the agent's only child", func(context.Context) (err error) { // a dry run may still be running
		if children, err = n.Children(); err == nil && len(children) != 1 {
			err = fmt.Errorf("the children are %v", children)
		}
		return err
	})
	kubelet := n.watchProcess(children[0])
	if err := n.Stop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	n.exitsWith(0)
	kubelet.gone(0)
}

func TestADryRunThatHangsIsInconclusive(t *testing.T) {
	t.Parallel()
	n := newNode(t, "hang", "--config-trial-duration=1s")
	n.wrap(`[ $mode != run ] && has 'maxPods: 123' && sleep 1000`)
	n.up()
	undisturbed := n.steady()
	hangs := n.configMap("hangs", map[string]any{"maxPods": 123})
	n.assign(hangs)
	w := want{
		status: "Unknown", reason: "CouldNotValidate", message: "using last-known-good (init)",
		cause: fmt.Sprintf("could not validate current (UID: %s): the dry run of the kubelet: it did not exit within 15s and was killed", hangs.UID),
	}
	w.err = w.cause
	nc := n.is(w)
	if nc.Status.Active != nil || len(nc.Status.BadConfigs) != 0 || n.starts(hangs) != 0 {
		t.Errorf("active %+v, bad %+v, %d starts", nc.Status.Active, nc.Status.BadConfigs, n.starts(hangs))
	}
	undisturbed.end(t)
	n.wantSample(`evenkeel_validations_total{verdict="could not tell"}`, 1)
	if processes, err := filepath.Glob(filepath.Join(n.Node.Dir(), "run-evenkeel", "dry-run", "dryrun-*")); err != nil || len(processes) > 0 {
		t.Errorf("the dry run left %v, %v", processes, err)
	}

	n.wrap("") // repaired: another kubelet may judge otherwise
	n.is(allChecksPassed(hangs))
	n.lastKnownGood(hangs)
}

// crashesWith makes a kubelet that crashes with what $dir/crashing lists.
const crashesWith = `[ $mode = run ] && grep -qxf "$dir/crashing" "$config" && exit 9`

func (n *node) crashing(lines ...string) {
	n.t.Helper()
	if err := os.WriteFile(n.beside("crashing"), []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func TestIfLastKnownGoodCrashesAsWellTheTrialWasInconclusive(t *testing.T) {
	t.Parallel()
	n := newNode(t, "inconclusive", "--config-trial-duration=1s", "--crash-loop-threshold=0")
	n.wrap(crashesWith)
	n.crashing()
	n.up()
	n.crashing("kind: KubeletConfiguration") // whatever the configuration: the node is broken
	cm := n.configMap("a", map[string]any{"maxPods": 123})
	n.assign(cm)
	n.is(deadEnd("(init)", "exit status 9"))
	n.event("Warning", "ConfigRolledBack", fmt.Sprintf("current (UID: %s) crash-looped", cm.UID))
	n.event("Warning", "Inconclusive", fmt.Sprintf("last-known-good (init) fails too: the verdict on (UID: %s) is withdrawn", cm.UID))
	if s := n.onDisk(); len(s.Bad) != 0 || s.Trial == nil || s.Trial.Fallback != trial.Inconclusive {
		t.Errorf("on disk bad are %+v, trial %+v", s.Bad, s.Trial)
	}

	n.crashing()
	n.is(allChecksPassed(cm))
	n.event("Normal", "TrialResumed", fmt.Sprintf("last-known-good (init) is healthy: the trial of current (UID: %s) continues", cm.UID))
	n.lastKnownGood(cm)
}

// deadEnd is ConfigOK while last-known-good crashes too.
func deadEnd(lastKnownGood, exit string) want {
	w := want{status: "False", reason: "DeadEnd", message: "using last-known-good " + lastKnownGood, cause: lastKnownGood + " keeps failing and there is nothing to fall back to"}
	w.err = w.cause + ": " + exit
	return w
}

func TestADeadEndIsReportedAndForgetRepairsIt(t *testing.T) {
	t.Parallel()
	n := newNode(t, "deadend", "--config-trial-duration=1s", "--crash-loop-threshold=0")
	n.wrap(crashesWith)
	n.crashing("maxPods: 123")
	n.up()
	good := n.configMap("good", map[string]any{"maxPods": 121})
	n.assign(good)
	n.lastKnownGood(good)
	bad := n.configMap("bad", map[string]any{"maxPods": 123})
	n.assign(bad)
	lkg := fmt.Sprintf("(UID: %s)", good.UID)
	n.is(rolledBack(bad, "CrashLooped", lkg, "crash-looped: 1 start in its trial, last: exit status 9"))
	n.healthyWith(good)
	n.verdictIsFinal(bad)

	n.crashing("maxPods: 121") // the last-known-good configuration now fails as well
	n.kill(n.kubeletPID())
	n.is(deadEnd(lkg, "exit status 9"))
	n.event("Warning", "DeadEnd", lkg+" keeps failing and there is nothing to fall back to")
	before := n.starts(good)
	n.eventually("it is tried on", func(context.Context) error {
		if now := n.starts(good); now < before+2 {
			return fmt.Errorf("%d starts, then %d", before, now)
		}
		return nil
	})

	out, code := n.Run(t.Context(), "", "forget", string(bad.UID), "--dynamic-config-dir="+n.Dir)
	if code != 0 || !strings.Contains(out, fmt.Sprintf("the running agent was asked to forget that %s is bad", bad.UID)) {
		t.Errorf("forget: exit code %d: %s", code, out)
	}
	n.is(allChecksPassed(bad))
	n.event("Normal", "Forgotten", fmt.Sprintf("(UID: %s) is no longer marked as bad: an operator requested it", bad.UID))
	n.lastKnownGood(bad)
}
