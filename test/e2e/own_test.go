// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// edit gives the ConfigMap the node's configuration with changes, creating it
// if there is none. It returns the revision.
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

// label names a revision as messages do: by the UID of the ConfigMap, and its
// content.
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

// runsRevision waits until the node is content with a revision, and its kubelet
// has maxPods.
func (o *own) runsRevision(revision string, maxPods float64) {
	o.t.Helper()
	nc := o.Says("True", "AllChecksPassed", "using current "+label(revision)+": all checks passed")
	if a := nc.Status.Active; a == nil || string(a.UID)+"-"+a.SHA256[:min(len(a.SHA256), 12)] != revision || a.UID != o.object.UID || a.Name != o.object.Name || nc.Status.RemoteConfig != v1alpha1.RemoteConfigConfigMap {
		o.t.Errorf("active is %+v, from a %s, want %s", a, nc.Status.RemoteConfig, revision)
	}

	o.KubeletHas("maxPods", maxPods)
}

// promoted waits until a revision is last-known-good.
func (o *own) promoted(revision string) {
	o.t.Helper()
	o.Eventually(revision+" is last-known-good", func(ctx context.Context) error {
		nc, err := o.Get(ctx)
		if err == nil && (nc.Status.LastKnownGood == nil || string(nc.Status.LastKnownGood.UID)+"-"+nc.Status.LastKnownGood.SHA256[:min(len(nc.Status.LastKnownGood.SHA256), 12)] != revision) {
			err = fmt.Errorf("last-known-good is %+v, ConfigOK %+v", nc.Status.LastKnownGood, bed.ConfigOK(nc))
		}

		return err
	})
}
