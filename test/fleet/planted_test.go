// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// plant makes a ConfigMap that looks like a revision of a rollout: with its label, a number, and maxPods 250.
func (r *rollout) plant(name, number string) *corev1.ConfigMap {
	r.t.Helper()
	yes := true
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: name,
			Labels:          map[string]string{v1alpha1.LabelRollout: r.as, v1alpha1.LabelRevision: number},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeConfigRollout", Name: r.as, UID: r.object().UID}},
		},
		Immutable: &yes,
		Data:      map[string]string{"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 250\n"},
	}
	r.do(kube.Create(r.t.Context(), cm))
	return cm
}

func TestAForgedConfigMapIsNeverRolledOut(t *testing.T) {
	t.Parallel()
	s := play(t, "planted", 2)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}`)
	first := r.complete(1)
	r.push("maxPods: 102")
	second := r.complete(2)
	h := r.await().History
	assert.That(t, len(h) == 2 && h[1].UID == first.UID && h[1].SHA256 == first.SHA256 && h[0].UID == second.UID, "the history is %+v", h)
	refused := func(words string, args ...string) {
		t.Helper()
		generation := r.object().Generation
		out := s.plugin(1, append([]string{"rollout", "undo", r.as}, args...)...)
		assert.That(t, strings.Contains(out, words), "undo says %s, want %q", out, words)
		assert.Must(t, r.object().Generation == generation, "the rollout was changed")
	}

	// While the real one exists.
	var planted []*corev1.ConfigMap
	plant := func(name, number string) *corev1.ConfigMap {
		t.Helper()
		planted = append(planted, r.plant(name, number))
		return planted[len(planted)-1]
	}
	plant("planted-twin", "1")
	refused("revision 1 of rollout \"planted\" has several ConfigMaps: the rollout's status lists ConfigMap evenkeel-system/"+first.Name, "--to-revision=1")
	refused("but not evenkeel-system/planted-twin: find out who created the latter", "--to-revision=1")
	refused("has several ConfigMaps")
	s.removeConfigMap("planted-twin")

	// Numbers that no revision has neither make the rollout Invalid, nor are they counted on from.
	for name, number := range map[string]string{
		"planted-huge": "9223372036854775807", "planted-larger": "9223372036854775806", "planted-odd": "007", "planted-zero": "0", "planted-next": "3",
	} {
		plant(name, number)
	}
	refused("lists no revision 9223372036854775806", "--to-revision=9223372036854775806")
	refused("lists no revision 3", "--to-revision=3")
	r.push("maxPods: 103")
	third := r.complete(3)
	s.same("run the third revision", s.running(third), s.nodes(0, 2))
	s.removeConfigMap("planted-next")

	// After the real one was deleted, under its name and under another.
	s.removeConfigMap(first.Name)
	plant(first.Name, "1")
	refused("ConfigMap evenkeel-system/"+first.Name+" of revision 1 of rollout \"planted\" was deleted and created again", "--to-revision=1")
	s.removeConfigMap(first.Name)
	plant("planted-instead", "1")
	refused("ConfigMap evenkeel-system/"+first.Name+" of revision 1 of rollout \"planted\" was deleted", "--to-revision=1")

	// A return to a genuine revision still works.
	s.plugin(0, "rollout", "undo", r.as)
	assert.Equal(t, r.complete(4), second, "the content of revision 4 is that of revision 2")
	s.same("run what the second revision was", s.running(second), s.nodes(0, 2))
	for _, cm := range planted {
		got := s.everGiven(v1alpha1.ConfigMapReference{UID: cm.UID})
		assert.That(t, len(got) == 0, "%v were given %s", got, cm.Name)
	}
}
