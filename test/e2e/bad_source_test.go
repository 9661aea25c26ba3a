package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
)

// unclear is ConfigOK when the desired configuration is unknown.
func unclear(using, cause string) want {
	cause = "failed to sync, desired config unclear, cause: " + cause
	return want{"Unknown", "SyncFailed", using, cause, cause}
}

func using(cm *corev1.ConfigMap) string { return fmt.Sprintf("using current (UID: %s)", cm.UID) }

// notice is a source that stays correct, with something to say about it.
func notice(cm *corev1.ConfigMap, words string) want {
	w := allChecksPassed(cm)
	w.err = words
	return w
}

func (n *node) assignRef(ref v1alpha1.ConfigMapReference) {
	n.t.Helper()
	assert.NoError(n.t, n.Assign(n.t.Context(), &v1alpha1.NodeConfigSource{ConfigMapRef: &ref}))
}

// edit changes a ConfigMap in place.
func (n *node) edit(cm *corev1.ConfigMap, change func(*corev1.ConfigMap)) {
	n.t.Helper()
	now := assert.Value(n.Kube.CoreV1().ConfigMaps(cm.Namespace).Get(n.t.Context(), cm.Name, getOptions))(n.t)
	change(now)
	assert.NoError(n.t, assert.Err(n.Kube.CoreV1().ConfigMaps(cm.Namespace).Update(n.t.Context(), now, metav1.UpdateOptions{})))
}

// assignsNothing is what a node says that keeps cm beside a NodeConfig that assigns nothing.
func (n *node) assignsNothing(cm *corev1.ConfigMap) want {
	return unclear(using(cm), "NodeConfig "+n.Node.Name()+" assigns nothing, so the node keeps its configuration; assign a configuration, or `local: {}`")
}

// TestASourceThatChangesOrGoesDisturbsNoKubelet has one node. internal/node/source has every other way in which a source can be
// unclear, and each message.
func TestASourceThatChangesOrGoesDisturbsNoKubelet(t *testing.T) {
	t.Parallel()
	n := newNode(t, "source", "--config-trial-duration=1s")
	n.Up()
	cm := n.good("a", map[string]any{"maxPods": 104})
	kubelet := n.Steady()

	ref := *bed.Ref(cm).ConfigMapRef
	ref.Name = "source-not-there"
	ref.UID = "no-uid"
	n.assignRef(ref)
	n.is(unclear(using(cm), "referenced ConfigMap evenkeel-system/source-not-there not found"))
	n.AssignMap(cm)
	n.is(allChecksPassed(cm))

	// The object is edited, deleted and created again.
	n.edit(cm, func(cm *corev1.ConfigMap) { cm.Data["kubelet"] += "podPidsLimit: 1000\n" })
	const edited = "ConfigMap evenkeel-system/source-a was edited after this node adopted it; the node keeps the checkpointed content: create a new ConfigMap to change it"
	n.is(notice(cm, edited))
	n.status("Why: "+using(cm)+": all checks passed", "Error: "+edited, fmt.Sprintf("Runs: evenkeel-system/source-a (UID: %s)", cm.UID))
	kubelet.End(t)
	n.stop()
	n.Up()
	n.resumes(cm, notice(cm, edited))
	kubelet = n.Steady()
	assert.NoError(t, n.Kube.CoreV1().ConfigMaps(cm.Namespace).Delete(t.Context(), cm.Name, metav1.DeleteOptions{}))
	n.is(notice(cm, "ConfigMap evenkeel-system/source-a was deleted after this node adopted it; the node keeps the checkpointed content"))
	again := n.CreateMap("a", map[string]string{"kubelet": cm.Data["kubelet"] + "podPidsLimit: 2000\n"})
	n.is(notice(cm, fmt.Sprintf("ConfigMap evenkeel-system/source-a was replaced by an object with uid %s; the node keeps the checkpointed content: assign the new uid to use it", again.UID)))
	kubelet.End(t)
	n.proves(again)
	n.nodeConfigDeleted(again)
}

// nodeConfigDeleted deletes the NodeConfig that assigns cm: the agent makes a new one, which removes nothing. A user does, who removes
// the assignment from the object that made it.
func (n *node) nodeConfigDeleted(cm *corev1.ConfigMap) {
	n.t.Helper()
	kubelet := n.Steady()
	before := n.config()
	assert.NoError(n.t, n.Delete(n.t.Context()))
	nc := n.is(n.assignsNothing(cm))
	if nc.UID == before.UID || nc.Generation != 1 || nc.Spec.ConfigSource != nil {
		n.t.Errorf("the NodeConfig is not one that the agent made: %s (was %s), generation %d, %+v", nc.UID, before.UID, nc.Generation, nc.Spec)
	}
	if nc.Status.Active == nil || nc.Status.Active.UID != cm.UID || nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.UID != cm.UID {
		n.t.Errorf("active is %+v, last-known-good %+v", nc.Status.Active, nc.Status.LastKnownGood)
	}
	n.recorded(string(cm.UID), string(cm.UID))

	// A rollout gives it the same, and takes that back although the node has adopted it.
	ref := &v1alpha1.RolloutReference{Name: "workers", Revision: 1, Attempt: 1, AssignedAt: metav1.Now()}
	source := bed.Ref(cm)
	source.RolloutRef = ref
	taken := &v1alpha1.TakenBackAssignment{Rollout: ref.Name, Revision: 1, Attempt: 1, AssignedAt: ref.AssignedAt}
	assert.NoError(n.t, n.SetSpec(n.t.Context(), v1alpha1.NodeConfigSpec{ConfigSource: source}))
	n.is(allChecksPassed(cm))
	assert.NoError(n.t, n.SetSpec(n.t.Context(), v1alpha1.NodeConfigSpec{TakenBack: taken}))
	n.Eventually("the status answers that", func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err == nil && nc.Status.ObservedGeneration != nc.Generation {
			err = fmt.Errorf("it answers generation %d of %d", nc.Status.ObservedGeneration, nc.Generation)
		}
		return err
	})
	n.is(n.assignsNothing(cm))
	n.recorded(string(cm.UID), string(cm.UID))
	n.AssignMap(cm)
	n.is(allChecksPassed(cm))
	kubelet.End(n.t)

	assert.NoError(n.t, n.SetSpec(n.t.Context(), v1alpha1.NodeConfigSpec{}))
	n.is(localInit)
	n.recorded("", "")
}
