package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// changes counts how often the kubelet was started for a change, since the agent was.
func (o *own) changes() float64 { return o.sample(`evenkeel_kubelet_starts_total{cause="change"}`) }

// returns gives the ConfigMap a content that was promoted: it runs after one restart, and is last-known-good again when it
// has been well.
func (o *own) returns(revision string, maxPods int) {
	o.t.Helper()
	changes := o.changes()
	if again := o.edit(map[string]any{"maxPods": maxPods}); again != revision {
		o.t.Fatalf("the content is revision %s, was %s", again, revision)
	}
	o.runsRevision(revision, float64(maxPods))
	o.eventually("it is last-known-good again", func(context.Context) error {
		if s := o.onDisk(); s.LastKnownGood.Revision != revision || s.Trial != nil {
			return fmt.Errorf("last-known-good is %s, the trial %+v", s.LastKnownGood.Revision, s.Trial)
		}
		return nil
	})
	o.recorded(revision, revision)
	if now := o.changes(); now != changes+1 {
		o.t.Errorf("the kubelet was started %v times for it", now-changes)
	}
}

func TestTheNewestEditRunsAndRejectedContentsAreNotRetried(t *testing.T) {
	t.Parallel()
	n := newNode(t, "edits", "--config-source=configmap", "--config-namespace=evenkeel-system", "--config-trial-duration=1s", "--crash-loop-threshold=0")
	o := &own{node: n, namespace: v1alpha1.SystemNamespace}
	f := &fault{}
	n.behind(f)
	n.up()
	first := o.edit(map[string]any{"maxPods": 120})
	o.runsRevision(first, 120)
	o.promoted(first)

	// Edits during an outage: the node keeps its configuration, and afterwards runs only the newest content.
	undisturbed := n.steady()
	f.begin(func(w http.ResponseWriter, r *http.Request) bool {
		code(http.StatusServiceUnavailable)(w, r)
		return true
	})
	n.agentSays("Unknown", "SyncFailed", fmt.Sprintf("using current (UID: %s): failed to sync, desired config unclear, cause: ConfigMap evenkeel-system/kubelet-edits cannot be read: the API server failed (503): ", first))
	o.edit(map[string]any{"maxPods": 121})
	o.edit(map[string]any{"maxPodz": 122})
	newest := o.edit(map[string]any{"maxPods": 123})
	undisturbed.end(t)
	changes := o.changes()
	f.begin(nil)
	o.runsRevision(newest, 123)
	o.promoted(newest)
	if now := o.changes(); now != changes+1 {
		t.Errorf("the kubelet was started %v times for the edits during the outage", now-changes)
	}
	if s := n.onDisk(); len(s.Bad) != 0 {
		t.Errorf("bad are %+v", s.Bad)
	}

	// Two edits before the first can have run: at most a restart each, and the last one stays.
	changes = o.changes()
	o.edit(map[string]any{"maxPods": 124})
	last := o.edit(map[string]any{"maxPods": 125})
	o.runsRevision(last, 125)
	o.promoted(last)
	if now := o.changes(); now > changes+2 {
		t.Errorf("the kubelet was started %v times for two edits", now-changes)
	}

	o.returns(first, 120)

	// A content that was found bad stays refused: no restart, and the original reason.
	bad := o.edit(overReserved(126))
	cause := fmt.Sprintf("current (UID: %s) crash-looped: 1 start in its trial, last: exit status 1", bad)
	using := fmt.Sprintf("using last-known-good (UID: %s): ", first)
	n.says("False", "CrashLooped", using+cause)
	n.healthyOn(first)
	n.eventually("the verdict is final", func(context.Context) error {
		if s := n.onDisk(); len(s.Bad) != 1 || s.Bad[0].Revision != bad || s.Bad[0].Provisional {
			return fmt.Errorf("bad are %+v", s.Bad)
		}
		return nil
	})
	o.returns(last, 125)
	undisturbed = n.steady()
	o.edit(overReserved(126))
	using = fmt.Sprintf("using last-known-good (UID: %s): ", last)
	nc := n.says("False", "CrashLooped", using+cause)
	if nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.Revision != last || len(nc.Status.BadConfigs) != 1 || !strings.HasPrefix(nc.Status.BadConfigs[0].Reason, cause+": ") {
		t.Errorf("last-known-good is %+v, bad are %+v", nc.Status.LastKnownGood, nc.Status.BadConfigs)
	}
	undisturbed.end(t)

	// Until it is forgotten: then it is tried once more.
	changes = o.changes()
	n.runs(0, "", []string{"forget", bad, "--dynamic-config-dir=" + n.Dir}, fmt.Sprintf("the running agent was asked to forget that %s is bad", bad))
	n.event("Normal", "Forgotten", fmt.Sprintf("(UID: %s) is no longer marked as bad: an operator requested it", bad))
	n.eventually("it was tried again", func(context.Context) error {
		if now := o.changes(); now != changes+1 {
			return fmt.Errorf("the kubelet was started %v times for it", now-changes)
		}
		return nil
	})
	n.says("False", "CrashLooped", using+cause)
	n.healthyOn(last)
}

func TestEveryFormOfAPayloadAndEitherSourceOnOneNode(t *testing.T) {
	t.Parallel()
	flags := []string{"--config-source=configmap", "--config-namespace=evenkeel-system"}
	n := newNode(t, "forms", append(flags, "--config-trial-duration=1s")...)
	o := &own{node: n, namespace: v1alpha1.SystemNamespace}
	n.up()

	// A drop-in is laid over what the node has, and a grouped payload replaces it.
	dropin := o.put(payload.KeyKubeletDropin, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 127\n")
	o.runsRevision(dropin, 127)
	config, err := n.KubeletConfigz(t.Context())
	if err != nil || config["clusterDomain"] != "cluster.local" {
		t.Errorf("clusterDomain, which is the node's own, is %v, error %v", config["clusterDomain"], err)
	}
	o.promoted(dropin)
	grouped := o.put(payload.KeyKubeletDropin, `apiVersion: evenkeel.dev/v1alpha1
kind: KubeletConfiguration
trial: {configTrialDuration: 2s, crashLoopThreshold: 1}
resources: {maxPods: 128}
`)
	o.runsRevision(grouped, 128)
	o.promoted(grouped)
	n.event("Normal", "ConfigLastKnownGood", fmt.Sprintf("(UID: %s) became last-known-good after 2s of observed health", grouped))
	whole := o.edit(map[string]any{"maxPods": 129})
	o.runsRevision(whole, 129)
	o.promoted(whole)

	// The other source: nothing was assigned there, so that nothing changes until something is.
	n.stop()
	n.Flags = n.Flags[len(flags):]
	n.up()
	n.healthyOn(whole)
	nc := n.says("Unknown", "SyncFailed", fmt.Sprintf("using current (UID: %s): failed to sync, desired config unclear, cause: ", whole))
	if nc.Status.RemoteConfig != v1alpha1.RemoteConfigNodeConfig {
		t.Errorf("remoteConfig is %s", nc.Status.RemoteConfig)
	}
	undisturbed := n.steady()
	ignored := o.edit(map[string]any{"maxPods": 130})
	assigned := n.configMap("assigned", map[string]any{"maxPods": 131})
	undisturbed.end(t)
	n.assign(assigned)
	n.is(allChecksPassed(assigned))
	n.lastKnownGood(assigned)
	n.healthyWith(assigned)

	// And back: what the ConfigMap holds by now is new to the node, and what it held before is not.
	n.stop()
	n.Flags = append(flags, n.Flags...)
	n.up()
	o.runsRevision(ignored, 130)
	o.promoted(ignored)
	o.returns(whole, 129)
	o.remove()
	n.says("True", "LocalInit", localInit.message)
	n.recorded("", "")
}
