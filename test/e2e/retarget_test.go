package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/bed"
)

// assignAttempt assigns a ConfigMap as a rollout does.
func (n *node) assignAttempt(cm *corev1.ConfigMap, attempt int64) {
	n.t.Helper()
	source := bed.Ref(cm)
	source.RolloutRef = &v1alpha1.RolloutReference{Name: "workers", Revision: 4, Attempt: attempt, AssignedAt: metav1.NewTime(time.Now().Truncate(time.Second))}
	if err := n.Assign(n.t.Context(), source); err != nil {
		n.t.Fatal(err)
	}
}

// promotions counts how often a revision was promoted, on disk.
func (n *node) promotions(cm *corev1.ConfigMap) int {
	n.t.Helper()
	count := 0
	for _, p := range n.onDisk().Promoted {
		if p.Revision == string(cm.UID) {
			count++
		}
	}
	return count
}

func TestAnAssignmentThatChangesInATrial(t *testing.T) {
	n := newNode(t, "retarget", "--config-trial-duration=4s")
	n.up()
	n.is(localInit)

	// A good one while another good one is in its trial.
	a, b := n.configMap("a", map[string]any{"maxPods": 121}), n.configMap("b", map[string]any{"maxPods": 122})
	n.assign(a)
	nc := n.is(allChecksPassed(a))
	if nc.Status.Trial == nil || nc.Status.Trial.DurationSeconds != 4 || nc.Status.Trial.Restarts != 0 || nc.Status.Trial.CrashLoopThreshold != 3 {
		t.Errorf("the trial is %+v", nc.Status.Trial)
	}
	n.recorded(string(a.UID), "")
	n.assign(b)
	nc = n.is(allChecksPassed(b))
	if nc.Status.Trial == nil || nc.Status.LastKnownGood != nil {
		t.Errorf("the trial is %+v, last-known-good %+v", nc.Status.Trial, nc.Status.LastKnownGood)
	}
	n.recorded(string(b.UID), "")
	n.eventually("the kubelet is healthy with it", n.Healthy)

	// A bad configuration during that trial, which continues.
	kubelet := n.steady()
	bad := n.configMap("bad", map[string]any{"maxPodz": 3})
	n.assign(bad)
	nc = n.is(rejected(bad, fmt.Sprintf("using (UID: %s)", b.UID), `strict decoding error: unknown field "maxPodz"`))
	if nc.Status.Trial == nil || nc.Status.Active == nil || nc.Status.Active.UID != b.UID || nc.Status.LastKnownGood != nil || nc.Status.Assigned.UID != bad.UID {
		t.Errorf("the trial is %+v, assigned %+v, active %+v, last-known-good %+v", nc.Status.Trial, nc.Status.Assigned, nc.Status.Active, nc.Status.LastKnownGood)
	}
	n.recorded(string(b.UID), "")
	n.is(rejected(bad, fmt.Sprintf("using last-known-good (UID: %s)", b.UID), `strict decoding error: unknown field "maxPodz"`))
	n.lastKnownGood(b)
	n.recorded(string(b.UID), string(b.UID))
	if n.promotions(a) != 0 || n.promotions(b) != 1 {
		t.Errorf("promoted are %+v, want the second alone", n.onDisk().Promoted)
	}
	kubelet.end(t)

	// The same payload under another UID takes the standing over: no restart.
	kubelet = n.steady()
	twin := n.create("twin", b.Data)
	n.assign(twin)
	n.is(allChecksPassed(twin))
	n.lastKnownGood(twin)
	n.recorded(string(twin.UID), string(twin.UID))
	n.edit(twin, func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"team": "nodes"} })
	n.assignAttempt(twin, 1)
	nc = n.is(allChecksPassed(twin))
	if r := nc.Status.Assigned.RolloutRef; r == nil || r.Name != "workers" || r.Attempt != 1 {
		t.Errorf("assigned.rolloutRef is %+v", r)
	}
	kubelet.end(t)

	// Also during a trial, which continues under the new name.
	c := n.configMap("c", map[string]any{"maxPods": 123})
	n.assign(c)
	n.is(allChecksPassed(c))
	n.eventually("the kubelet is healthy with it", n.Healthy)
	kubelet = n.steady()
	heir := n.create("heir", c.Data)
	n.assign(heir)
	nc = n.is(allChecksPassed(heir))
	if nc.Status.Trial == nil || nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.UID != twin.UID {
		t.Errorf("the trial is %+v, last-known-good %+v", nc.Status.Trial, nc.Status.LastKnownGood)
	}
	n.lastKnownGood(heir)
	kubelet.end(t)

	// One that was promoted before has a trial too: until that has passed, a failure goes back to the one before.
	n.assign(b)
	nc = n.is(allChecksPassed(b))
	if good := nc.Status.LastKnownGood; good == nil || good.UID != heir.UID && (good.UID != b.UID || nc.Status.Trial != nil) {
		t.Errorf("the trial is %+v, last-known-good %+v", nc.Status.Trial, good)
	}
	n.lastKnownGood(b)

	// Local makes the node forget its last-known-good configuration.
	n.assign(nil)
	nc = n.is(localInit)
	if nc.Status.LastKnownGood != nil || nc.Status.Active != nil || nc.Status.Assigned != nil {
		t.Errorf("last-known-good is %+v, active %+v, assigned %+v", nc.Status.LastKnownGood, nc.Status.Active, nc.Status.Assigned)
	}
	n.recorded("", "")
	n.eventually("the kubelet is healthy with local", n.Healthy)

	// A bad content stays bad under any name.
	kubelet = n.steady()
	n.assign(bad)
	n.is(rejected(bad, "using last-known-good (init)", `strict decoding error: unknown field "maxPodz"`))
	n.assign(n.create("copy", bad.Data))
	nc, err := n.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	uid := nc.Spec.ConfigSource.ConfigMapRef.UID
	cause := fmt.Sprintf("refused current (UID: %s): it has the same content as (UID: %s), which is bad: failed to validate current (UID: %s)", uid, bad.UID, bad.UID)
	nc = n.is(want{"False", "ValidationFailed", "using last-known-good (init)", cause, cause + `: strict decoding error: unknown field "maxPodz"`})
	if len(nc.Status.BadConfigs) != 1 {
		t.Errorf("badConfigs are %+v, want one", nc.Status.BadConfigs)
	}
	kubelet.end(t)
	n.stop()
	n.up()
	n.is(want{"False", "ValidationFailed", "using last-known-good (init)", cause, cause + `: strict decoding error: unknown field "maxPodz"`})

	// Of several in quick succession only the last is adopted, with one restart.
	var last *corev1.ConfigMap
	for i := range 4 {
		last = n.configMap(fmt.Sprint("burst-", i), map[string]any{"maxPods": 130 + i})
		n.assign(last)
	}
	n.is(allChecksPassed(last))
	n.lastKnownGood(last)
	n.metrics(`evenkeel_kubelet_starts_total{cause="boot"} 1`, `evenkeel_kubelet_starts_total{cause="change"} 1`)
}

func TestAHigherAttemptRetriesABadConfiguration(t *testing.T) {
	n := newNode(t, "attempt", "--config-trial-duration=1s", "--crash-loop-threshold=0", "--protected-fields=-tlsCertFile,-tlsPrivateKeyFile")
	n.up()
	crt, key := filepath.Join(n.Node.Dir(), "serving.crt"), filepath.Join(n.Node.Dir(), "serving.key")
	cm := n.configMap("tls", map[string]any{"tlsCertFile": crt, "tlsPrivateKeyFile": key})
	n.assignAttempt(cm, 1)
	cause := fmt.Sprintf("current (UID: %s) crash-looped: 1 start in its trial, last: exit status 1", cm.UID)
	n.is(want{"False", "CrashLooped", "using last-known-good (init)", cause, cause})
	n.recorded(string(cm.UID), "")
	n.eventually("the kubelet is healthy with local", n.Healthy)

	// The cause is mended, but the node cannot know.
	for _, move := range [][2]string{{"kubelet.crt", crt}, {"kubelet.key", key}} {
		if err := os.Link(filepath.Join(n.Node.Dir(), "pki", move[0]), move[1]); err != nil {
			t.Fatal(err)
		}
	}
	kubelet := n.steady()
	n.assign(nil)
	n.is(localInit)
	n.assignAttempt(cm, 1)
	n.is(want{"False", "CrashLooped", "using last-known-good (init)", cause, cause})
	kubelet.end(t)

	n.assignAttempt(cm, 2)
	nc := n.is(allChecksPassed(cm))
	if len(nc.Status.BadConfigs) != 0 {
		t.Errorf("badConfigs are %+v", nc.Status.BadConfigs)
	}
	n.lastKnownGood(cm)

	// Revoked, it is neither run nor fallen back to.
	revoke := func(source *v1alpha1.NodeConfigSource, uids ...types.UID) {
		t.Helper()
		if err := n.SetSpec(t.Context(), v1alpha1.NodeConfigSpec{ConfigSource: source, Revoked: uids}); err != nil {
			t.Fatal(err)
		}
	}
	revoke(bed.Ref(cm), "some-other-uid", cm.UID)
	cause = fmt.Sprintf("refused current (UID: %s): it is revoked", cm.UID)
	nc = n.is(want{"False", "Revoked", "using (init)", cause, cause})
	if nc.Status.Active != nil {
		t.Errorf("active is %+v", nc.Status.Active)
	}
	if revoked := n.onDisk().Revoked; !slices.Equal(revoked, []string{"some-other-uid", string(cm.UID)}) {
		t.Errorf("revoked on disk are %q", revoked)
	}
	n.status("Runs: the local configuration", "Why: using (init): "+cause, fmt.Sprintf("Revoked: %s", cm.UID))
	n.eventually("the kubelet runs with local", func(ctx context.Context) error {
		config, err := n.KubeletConfigz(ctx)
		if err == nil && config["tlsCertFile"] == crt {
			err = fmt.Errorf("it runs with %v", crt)
		}
		return err
	})
	good := n.configMap("good", map[string]any{"maxPods": 124})
	revoke(bed.Ref(good), cm.UID)
	n.is(allChecksPassed(good))
	n.lastKnownGood(good)
	revoke(bed.Ref(cm))
	n.is(allChecksPassed(cm))

	// A spec that says nothing means local, too.
	if err := n.SetSpec(t.Context(), v1alpha1.NodeConfigSpec{}); err != nil {
		t.Fatal(err)
	}
	n.is(localInit)
	n.recorded("", "")
}
