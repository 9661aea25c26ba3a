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
	data, err := o.Config(changes)
	if err != nil {
		o.t.Fatal(err)
	}
	return o.put(payload.KeyKubelet, data)
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
	if err != nil {
		o.t.Fatal(err)
	}
	return string(o.object.UID) + "-" + payload.Digest(key, []byte(data))[:12]
}

// remove deletes the ConfigMap.
func (o *own) remove() {
	o.t.Helper()
	if err := o.Kube.CoreV1().ConfigMaps(o.namespace).Delete(o.t.Context(), o.object.Name, metav1.DeleteOptions{}); err != nil {
		o.t.Fatal(err)
	}
	o.object = nil
}

// runsRevision waits until the node is content with a revision, and its kubelet has maxPods.
func (o *own) runsRevision(revision string, maxPods float64) {
	o.t.Helper()
	nc := o.says("True", "AllChecksPassed", fmt.Sprintf("using current (UID: %s): all checks passed", revision))
	if a := nc.Status.Active; a == nil || a.Revision != revision || a.UID != o.object.UID || a.Name != o.object.Name || nc.Status.RemoteConfig != v1alpha1.RemoteConfigConfigMap {
		o.t.Errorf("active is %+v, from a %s, want %s", a, nc.Status.RemoteConfig, revision)
	}
	o.eventually("the kubelet runs it", func(ctx context.Context) error {
		config, err := o.KubeletConfigz(ctx)
		if err == nil && config["maxPods"] != maxPods {
			err = fmt.Errorf("maxPods is %v, want %v", config["maxPods"], maxPods)
		}
		return err
	})
}

// promoted waits until a revision is last-known-good.
func (o *own) promoted(revision string) {
	o.t.Helper()
	o.eventually(revision+" is last-known-good", func(ctx context.Context) error {
		nc, err := o.Get(ctx)
		if err == nil && (nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.Revision != revision) {
			err = fmt.Errorf("last-known-good is %+v, ConfigOK %+v", nc.Status.LastKnownGood, bed.ConfigOK(nc))
		}
		return err
	})
}

func TestANodeFollowsItsOwnConfigMap(t *testing.T) {
	n := newNode(t, "own", "--config-source=configmap", "--config-namespace=evenkeel-system", "--config-trial-duration=1s")
	o := &own{node: n, namespace: v1alpha1.SystemNamespace}
	n.up()
	nc := n.says("True", "LocalInit", "using current (init)")
	if nc.Status.RemoteConfig != v1alpha1.RemoteConfigConfigMap || nc.Status.ObservedGeneration != 0 {
		t.Errorf("remoteConfig is %s at generation %d", nc.Status.RemoteConfig, nc.Status.ObservedGeneration)
	}

	first := o.edit(map[string]any{"maxPods": 120})
	o.runsRevision(first, 120)
	second := o.edit(map[string]any{"maxPods": 121})
	o.runsRevision(second, 121)
	o.promoted(second)

	// Without effect: metadata, the NodeConfig's assignment, and a content that the kubelet refuses.
	pid := n.kubeletPID()
	if _, err := n.Kube.CoreV1().ConfigMaps(o.object.Namespace).Patch(t.Context(), o.object.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	n.assign(n.configMap("other", map[string]any{"maxPods": 122}))
	bad := o.edit(map[string]any{"maxPods": -1})
	n.says("False", "ValidationFailed", fmt.Sprintf("failed to validate current (UID: %s)", bad))
	if got := n.kubeletPID(); got != pid {
		t.Errorf("the kubelet is process %d, want %d still", got, pid)
	}
	nc, err := n.Get(t.Context())
	if err != nil || len(nc.Status.BadConfigs) != 1 || nc.Status.BadConfigs[0].Revision != bad {
		t.Errorf("bad configs are %+v, error %v", nc.Status.BadConfigs, err)
	}

	// The agent restarts with the configuration on disk, without a new trial.
	o.runsRevision(o.edit(map[string]any{"maxPods": 121}), 121)
	n.stop()
	n.up()
	o.runsRevision(second, 121)
	n.recorded(second, second)

	o.remove()
	nc = n.says("True", "LocalInit", "using current (init)")
	if nc.Status.LastKnownGood != nil || nc.Status.Active != nil || nc.Status.Assigned != nil {
		t.Errorf("in the end last-known-good is %+v, active %+v, assigned %+v", nc.Status.LastKnownGood, nc.Status.Active, nc.Status.Assigned)
	}
}
