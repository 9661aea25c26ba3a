package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// own is the ConfigMap of a node's own, as these tests change it.
type own struct {
	*node
	object *corev1.ConfigMap
}

// edit gives the ConfigMap the node's configuration with changes, creating it if there is none. It returns the revision.
func (o *own) edit(changes map[string]any) string {
	o.t.Helper()
	data, err := o.Config(changes)
	if err != nil {
		o.t.Fatal(err)
	}
	if o.object == nil {
		o.object, err = o.Create(o.t.Context(), "kubelet-"+o.Node.Name(), map[string]string{"kubelet": data})
	} else {
		o.object.Data["kubelet"] = data
		o.object, err = o.Kube.CoreV1().ConfigMaps(o.object.Namespace).Update(o.t.Context(), o.object, metav1.UpdateOptions{})
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return string(o.object.UID) + "-" + payload.Digest("kubelet", []byte(data))[:12]
}

// runsRevision waits until the node is content with a revision, and its kubelet has maxPods.
func (o *own) runsRevision(revision string, maxPods float64) {
	o.t.Helper()
	nc := o.says(20*time.Second, "True", "AllChecksPassed", fmt.Sprintf("using current (UID: %s): all checks passed", revision))
	if a := nc.Status.Active; a == nil || a.Revision != revision || a.UID != o.object.UID || a.Name != o.object.Name || nc.Status.RemoteConfig != v1alpha1.RemoteConfigConfigMap {
		o.t.Errorf("active is %+v, from a %s, want %s", a, nc.Status.RemoteConfig, revision)
	}
	o.eventually(10*time.Second, "the kubelet runs it", func(ctx context.Context) error {
		config, err := o.KubeletConfigz(ctx)
		if err == nil && config["maxPods"] != maxPods {
			err = fmt.Errorf("maxPods is %v, want %v", config["maxPods"], maxPods)
		}
		return err
	})
}

func TestANodeFollowsTheConfigMapOfItsOwn(t *testing.T) {
	n := newNode(t, "own", "--config-source=configmap", "--config-namespace=evenkeel-system", "--config-trial-duration=1s")
	o := &own{node: n}
	n.up()
	nc := n.says(10*time.Second, "True", "LocalInit", "using current (init)")
	if nc.Status.RemoteConfig != v1alpha1.RemoteConfigConfigMap || nc.Status.ObservedGeneration != 0 {
		t.Errorf("remoteConfig is %s at generation %d", nc.Status.RemoteConfig, nc.Status.ObservedGeneration)
	}

	first := o.edit(map[string]any{"maxPods": 120})
	o.runsRevision(first, 120)
	second := o.edit(map[string]any{"maxPods": 121})
	o.runsRevision(second, 121)
	n.eventually(20*time.Second, "the second content is last-known-good", func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err == nil && (nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.Revision != second) {
			err = fmt.Errorf("it is %+v", nc.Status.LastKnownGood)
		}
		return err
	})

	// What changes nothing: metadata, what the NodeConfig assigns, and a content that the kubelet refuses.
	pid := n.kubeletPID()
	if _, err := n.Kube.CoreV1().ConfigMaps(o.object.Namespace).Patch(t.Context(), o.object.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	n.assign(n.configMap("other", map[string]any{"maxPods": 122}))
	var err error
	if o.object, err = n.Kube.CoreV1().ConfigMaps(o.object.Namespace).Get(t.Context(), o.object.Name, getOptions); err != nil {
		t.Fatal(err)
	}
	bad := o.edit(map[string]any{"maxPods": -1})
	n.says(20*time.Second, "False", "ValidationFailed", fmt.Sprintf("failed to validate current (UID: %s)", bad))
	if got := n.kubeletPID(); got != pid {
		t.Errorf("the kubelet is process %d, want %d still", got, pid)
	}
	if nc, err = n.Get(t.Context()); err != nil || len(nc.Status.BadConfigs) != 1 || nc.Status.BadConfigs[0].Revision != bad {
		t.Errorf("bad configs are %+v, error %v", nc.Status.BadConfigs, err)
	}

	// The agent starts again with what is on disk, and back to it without a new trial.
	o.runsRevision(o.edit(map[string]any{"maxPods": 121}), 121)
	n.stop()
	n.up()
	o.runsRevision(second, 121)
	n.recorded(second, second)

	if err := n.Kube.CoreV1().ConfigMaps(o.object.Namespace).Delete(t.Context(), o.object.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	nc = n.says(20*time.Second, "True", "LocalInit", "using current (init)")
	if nc.Status.LastKnownGood != nil || nc.Status.Active != nil || nc.Status.Assigned != nil {
		t.Errorf("in the end last-known-good is %+v, active %+v, assigned %+v", nc.Status.LastKnownGood, nc.Status.Active, nc.Status.Assigned)
	}
}
