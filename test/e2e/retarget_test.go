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
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
)

// assignAttempt assigns a ConfigMap as a rollout does.
func (n *node) assignAttempt(cm *corev1.ConfigMap, attempt int64) {
	n.t.Helper()
	source := bed.Ref(cm)
	source.RolloutRef = &v1alpha1.RolloutReference{Name: "workers", Revision: 4, Attempt: attempt, AssignedAt: metav1.NewTime(time.Now().Truncate(time.Second))}
	assert.NoError(n.t, n.Assign(n.t.Context(), source))
}

func TestAnAssignmentThatChangesInATrial(t *testing.T) {
	t.Parallel()
	n := newNode(t, "retarget", "--config-trial-duration=4s")
	n.Up()
	n.is(localInit)

	// A good one while another good one is in its trial, and a bad one in the trial of that, which continues.
	a, b := n.ConfigMap("a", map[string]any{"maxPods": 121}), n.ConfigMap("b", map[string]any{"maxPods": 122})
	n.AssignMap(a)
	n.is(allChecksPassed(a))
	n.AssignMap(b)
	nc := n.is(allChecksPassed(b))
	assert.That(t, nc.Status.Trial != nil && nc.Status.LastKnownGood == nil,
		"the trial is %+v, last-known-good %+v", nc.Status.Trial, nc.Status.LastKnownGood)
	n.recorded(string(b.UID), "")
	kubelet := n.Steady()
	bad := n.assignNew("bad", map[string]any{"maxPodz": 3})
	const typo = `strict decoding error: unknown field "maxPodz"`
	n.is(rejected(bad, fmt.Sprintf("using (UID: %s)", b.UID), typo))
	n.is(rejected(bad, fmt.Sprintf("using last-known-good (UID: %s)", b.UID), typo))
	n.LastKnownGood(b)
	n.recorded(string(b.UID), string(b.UID))

	// The same payload under another UID takes the standing over: no restart. A bad content stays bad under any name.
	twin := n.CreateMap("twin", b.Data)
	n.proves(twin)
	n.recorded(string(twin.UID), string(twin.UID))
	n.AssignMap(n.CreateMap("copy", bad.Data))
	cause := fmt.Sprintf("refused current (UID: %s): it has the same content as (UID: %s), which is bad: failed to validate current (UID: %s)",
		n.config().Spec.ConfigSource.ConfigMapRef.UID, bad.UID, bad.UID)
	n.is(want{"False", "ValidationFailed", fmt.Sprintf("using last-known-good (UID: %s)", twin.UID), cause, cause + ": " + typo})
	kubelet.End(t)

	// Local makes the node forget its last-known-good configuration.
	n.AssignMap(nil)
	nc = n.is(localInit)
	assert.That(t, nc.Status.LastKnownGood == nil && nc.Status.Active == nil && nc.Status.Assigned == nil,
		"last-known-good is %+v, active %+v, assigned %+v", nc.Status.LastKnownGood, nc.Status.Active, nc.Status.Assigned)
	n.recorded("", "")
	n.Arrived()

	// Of several in quick succession only the last is adopted, with one restart.
	changes := n.sample(`evenkeel_kubelet_starts_total{cause="change"}`)
	var last *corev1.ConfigMap
	for i := range 4 {
		last = n.ConfigMap(fmt.Sprint("burst-", i), map[string]any{"maxPods": 130 + i})
		n.AssignMap(last)
	}
	n.is(allChecksPassed(last))
	n.LastKnownGood(last)
	n.wantSample(`evenkeel_kubelet_starts_total{cause="change"}`, changes+1)
}

func TestAHigherAttemptRetriesABadConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t, "attempt", "--config-trial-duration=1s", "--crash-loop-threshold=0", "--protected-fields=-tlsCertFile,-tlsPrivateKeyFile")
	n.Up()
	crt, key := filepath.Join(n.Node.Dir(), "serving.crt"), filepath.Join(n.Node.Dir(), "serving.key")
	cm := n.ConfigMap("tls", map[string]any{"tlsCertFile": crt, "tlsPrivateKeyFile": key})
	n.assignAttempt(cm, 1)
	cause := fmt.Sprintf("current (UID: %s) crash-looped: 1 start in its trial, last: exit status 1", cm.UID)
	n.is(want{"False", "CrashLooped", "using last-known-good (init)", cause, cause})
	n.recorded(string(cm.UID), "")
	n.Eventually("the kubelet is healthy with local", n.Healthy)

	// The cause is mended, but the node cannot know.
	for _, move := range [][2]string{{"kubelet.crt", crt}, {"kubelet.key", key}} {
		assert.NoError(t, os.Link(filepath.Join(n.Node.Dir(), "pki", move[0]), move[1]))
	}
	kubelet := n.Steady()
	n.AssignMap(nil)
	n.is(localInit)
	n.assignAttempt(cm, 1)
	n.is(want{"False", "CrashLooped", "using last-known-good (init)", cause, cause})
	kubelet.End(t)

	n.assignAttempt(cm, 2)
	nc := n.is(allChecksPassed(cm))
	assert.That(t, len(nc.Status.BadConfigs) == 0, "badConfigs are %+v", nc.Status.BadConfigs)
	n.LastKnownGood(cm)

	// Revoked, it is neither run nor fallen back to.
	revoke := func(source *v1alpha1.NodeConfigSource, uids ...types.UID) {
		t.Helper()
		assert.NoError(t, n.SetSpec(t.Context(), v1alpha1.NodeConfigSpec{ConfigSource: source, Revoked: uids}))
	}
	revoke(bed.Ref(cm), "some-other-uid", cm.UID)
	cause = fmt.Sprintf("refused current (UID: %s): it is revoked", cm.UID)
	nc = n.is(want{"False", "Revoked", "using (init)", cause, cause})
	assert.That(t, nc.Status.Active == nil, "active is %+v", nc.Status.Active)
	revoked := n.onDisk().Revoked
	assert.That(t, slices.Equal(revoked, []string{"some-other-uid", string(cm.UID)}), "revoked on disk are %q", revoked)
	n.status("Runs: the local configuration", "Why: using (init): "+cause, fmt.Sprintf("Revoked: %s", cm.UID))
	n.Eventually("the kubelet runs with local", func(ctx context.Context) error {
		config, err := n.KubeletConfigz(ctx)
		if err == nil && config["tlsCertFile"] == crt {
			err = fmt.Errorf("it runs with %v", crt)
		}
		return err
	})
}
