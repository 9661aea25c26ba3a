// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestUndoNamesAllEditedConfigMapsAndOverwritesThemOnRequest(t *testing.T) {
	before := contents{"kubelet-config": "a", "kube-proxy": "b", "kubeadm-config": "c"}
	c := world(t, before)
	store(t, c, "v1.37.0", contents{"kubelet-config": "a2", "kube-proxy": "b2", "kubeadm-config": "c2"})
	replace(t, c, "kubelet-config", "theirs")
	assert.NoError(t, c.Delete(t.Context(), configMap("kubeadm-config", "")))
	says(t, undo(t.Context(), c, false), "changed since the apply of v1.37.0 at 2",
		"ConfigMap kube-system/kubeadm-config, kube-system/kubelet-config: ", "--overwrite")
	has(t, c, contents{"kubelet-config": "theirs", "kube-proxy": "b2"})
	recorded(t, c, "00001 v1.37.0 applied")

	assert.NoError(t, undo(t.Context(), c, true))
	has(t, c, before)
	recorded(t, c)
}

// That somebody restored by hand what an apply had changed does not make it one
// that was interrupted.
func TestAnApplyAfterARestoreByHandHasItsOwnRecord(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a", "kube-proxy": "b"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a2", "kube-proxy": "b2"})
	replace(t, c, "kubelet-config", "a")
	store(t, c, "v1.38.0", contents{"kube-proxy": "b3"})
	recorded(t, c, "00001 v1.37.0 applied", "00002 v1.38.0 applied")
	assert.NoError(t, undo(t.Context(), c, false))
	has(t, c, contents{"kubelet-config": "a", "kube-proxy": "b2"})
	assert.NoError(t, undo(t.Context(), c, false)) // it skips what was restored by hand
	has(t, c, contents{"kubelet-config": "a", "kube-proxy": "b"})
}

func TestUndoKeepsLabelsAndAnnotationsSetSince(t *testing.T) {
	c := world(t, contents{"kubelet-config": "user's"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a"})
	edit(t, c, "kubelet-config", func(cm *corev1.ConfigMap) { cm.Labels["their"], cm.Annotations["their"] = "label", "annotation" })
	assert.NoError(t, undo(t.Context(), c, false))
	cm := snapshot(t, c)["kubelet-config"]
	assert.That(t, cm.Data["config"] == "user's" && cm.Labels["their"] == "label" && cm.Annotations["their"] == "annotation" && len(cm.Annotations) == 2,
		"not as it was, with what others have set: %+v", cm)
}

func TestAnUndoThatConflictsWithAnEditFailsAndKeepsItsRecord(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a", "kube-proxy": "b"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a2", "kube-proxy": "b2"})
	says(t, undo(t.Context(), late(t, c, "kubelet-config", "theirs"), false),
		"1 of 2 ConfigMaps were restored: ConfigMap kube-system/kubelet-config was changed in the meantime")
	has(t, c, contents{"kubelet-config": "theirs", "kube-proxy": "b"})
	recorded(t, c, "00001 v1.37.0 applied")
}

func TestAnUndoThatConflictsWithAnotherRestoresNothing(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a2"})
	r := assert.Value(LatestUndoRecord(t.Context(), c))(t)
	writes := assert.Value(r.Undo(t.Context(), c, false))(t)
	assert.NoError(t, undo(t.Context(), c, false))
	says(t, Restore(t.Context(), c, r, writes),
		"nothing was restored: record kube-system/evenkeel-component-00001 was changed by a concurrent apply or undo", "run the command again")
	has(t, c, contents{"kubelet-config": "a"})
}

func TestAnUndoThatCannotDeleteItsRecordExplainsTheConsequence(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a2"})
	cut := between(t, "evenkeel-component-00001", func() error { return errors.New("gone") })
	says(t, undo(t.Context(), cut, false),
		"everything was restored, but undo record evenkeel-component-00001 may still exist; the next undo then has nothing to do: gone")
	has(t, c, contents{"kubelet-config": "a"})
	assert.NoError(t, undo(t.Context(), c, false))
	has(t, c, contents{"kubelet-config": "a"})
	recorded(t, c)
}
