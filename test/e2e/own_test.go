package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
)

// own is the ConfigMap of a node's own, as these tests change it.
type own struct {
	*node
	namespace string
	object    *corev1.ConfigMap
}

// edit gives the ConfigMap the node's configuration with changes, creating it if there is none. It returns the revision.
func (o *own) edit(changes map[string]any) string {
	o.t.Helper()
	return o.put(payload.KeyKubelet, o.text(changes))
}

// put gives the ConfigMap one key and no other.
func (o *own) put(key, data string) string {
	o.t.Helper()
	configMaps := o.Kube.CoreV1().ConfigMaps(o.namespace)
	var err error
	if o.object == nil {
		o.object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kubelet-" + o.Node.Name()}, Data: map[string]string{key: data}}
		o.object, err = configMaps.Create(o.t.Context(), o.object, metav1.CreateOptions{})
	} else {
		o.object.Data, o.object.ResourceVersion = map[string]string{key: data}, "" // whatever else was changed
		o.object, err = configMaps.Update(o.t.Context(), o.object, metav1.UpdateOptions{})
	}
	assert.NoError(o.t, err)
	return string(o.object.UID) + "-" + payload.Digest(key, []byte(data))[:12]
}

// label names a revision as messages do: by the UID of the ConfigMap, and its content.
func label(revision string) string {
	const uid = len("7f1d2c3b-0000-4000-8000-0123456789ab")
	return fmt.Sprintf("(UID: %s, content: %s)", revision[:uid], revision[uid+1:])
}

// remove deletes the ConfigMap.
func (o *own) remove() {
	o.t.Helper()
	assert.NoError(o.t, o.Kube.CoreV1().ConfigMaps(o.namespace).Delete(o.t.Context(), o.object.Name, metav1.DeleteOptions{}))
	o.object = nil
}

// runsRevision waits until the node is content with a revision, and its kubelet has maxPods.
func (o *own) runsRevision(revision string, maxPods float64) {
	o.t.Helper()
	nc := o.Says("True", "AllChecksPassed", "using current "+label(revision)+": all checks passed")
	if a := nc.Status.Active; a == nil || a.Revision != revision || a.UID != o.object.UID || a.Name != o.object.Name || nc.Status.RemoteConfig != v1alpha1.RemoteConfigConfigMap {
		o.t.Errorf("active is %+v, from a %s, want %s", a, nc.Status.RemoteConfig, revision)
	}
	o.KubeletHas("maxPods", maxPods)
}

// promoted waits until a revision is last-known-good.
func (o *own) promoted(revision string) {
	o.t.Helper()
	o.Eventually(revision+" is last-known-good", func(ctx context.Context) error {
		nc, err := o.Get(ctx)
		if err == nil && (nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.Revision != revision) {
			err = fmt.Errorf("last-known-good is %+v, ConfigOK %+v", nc.Status.LastKnownGood, bed.ConfigOK(nc))
		}
		return err
	})
}

func TestANodeFollowsEveryFormOfItsOwnConfigMapAndEitherSource(t *testing.T) {
	t.Parallel()
	flags := []string{"--config-source=configmap", "--config-namespace=evenkeel-system"}
	n := newNode(t, "forms", append(flags, "--config-trial-duration=1s")...)
	o := &own{node: n, namespace: v1alpha1.SystemNamespace}
	n.Up()
	nc := n.Says("True", "LocalInit", "using current (init)")
	assert.That(t, nc.Status.RemoteConfig == v1alpha1.RemoteConfigConfigMap && nc.Status.ObservedGeneration == 0,
		"remoteConfig is %s at generation %d", nc.Status.RemoteConfig, nc.Status.ObservedGeneration)

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
	n.Event("Normal", "ConfigLastKnownGood", label(grouped)+" became last-known-good after 2s of observed health")
	whole := o.edit(map[string]any{"maxPods": 129})
	o.runsRevision(whole, 129)
	o.promoted(whole)

	// Without effect: metadata, the NodeConfig's assignment, and a content that the kubelet refuses.
	undisturbed := n.Steady()
	assert.NoError(t, assert.Err(n.Kube.CoreV1().ConfigMaps(o.object.Namespace).Patch(t.Context(), o.object.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})))
	n.AssignMap(n.ConfigMap("other", map[string]any{"maxPods": 122}))
	bad := o.edit(map[string]any{"maxPods": -1})
	n.Says("False", "ValidationFailed", "failed to validate current "+label(bad))
	undisturbed.End(t)
	o.runsRevision(o.edit(map[string]any{"maxPods": 129}), 129)
	assert.NoError(t, n.SetSpec(t.Context(), v1alpha1.NodeConfigSpec{}))

	// The other source: nothing was assigned there, so that nothing changes until something is.
	n.stop()
	n.Flags = n.Flags[len(flags):]
	n.Up()
	n.healthyOn(whole)
	nc = n.Says("Unknown", "SyncFailed", "using current "+label(whole)+": failed to sync, desired config unclear, cause: ")
	assert.That(t, nc.Status.RemoteConfig == v1alpha1.RemoteConfigNodeConfig, "remoteConfig is %s", nc.Status.RemoteConfig)
	undisturbed = n.Steady()
	ignored := o.edit(map[string]any{"maxPods": 130})
	assigned := n.ConfigMap("assigned", map[string]any{"maxPods": 131})
	undisturbed.End(t)
	n.proves(assigned)
	n.healthyWith(assigned)

	// And back: what the ConfigMap holds by now is new to the node, and what it held before is not.
	n.stop()
	n.Flags = append(flags, n.Flags...)
	n.Up()
	o.runsRevision(ignored, 130)
	o.promoted(ignored)
	o.remove()
	n.Says("True", "LocalInit", localInit.message)
	n.recorded("", "")
}
