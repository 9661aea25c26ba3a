// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestConfirmationsSayWhatTheNodesDoAndWhatRestartsCost(t *testing.T) {
	r := waiting()
	content := assert.Value(fleet.ContentOf(r.Spec.Template, nil))(t)
	revision := &corev1.ConfigMap{Immutable: new(true), Data: map[string]string{content.Key: string(content.Data)}}
	revision.Namespace, revision.Name, revision.UID = v1alpha1.SystemNamespace, fleet.RevisionName(r.Name, content.SHA256), "u3"
	revision.Labels = map[string]string{v1alpha1.LabelRollout: r.Name, v1alpha1.LabelRevision: "3"}
	ref := v1alpha1.ConfigMapReference{Namespace: revision.Namespace, Name: revision.Name, UID: revision.UID, SHA256: content.SHA256}
	r.Status.UpdateRevision.ConfigMapRef = ref
	s, _ := served(t, true, r, revision)
	var objects []client.Object
	for name, pods := range map[string]int64{"has-it": 5, "pending-a": 3, "pending-b": 4, "pending-c": 0} {
		node, nc := nodeOf(name, "z1", true), configOf(name, metav1.ConditionTrue, "AllChecksPassed")
		node.Status.NodeInfo.KubeletVersion = "v1.34.4"
		nc.Status.PodsUnreadyOnRestart = &pods
		if name == "has-it" {
			nc.Status.Active = &v1alpha1.ConfigRevision{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, SHA256: ref.SHA256}
			nc.Status.LastKnownGood = &v1alpha1.LastKnownGoodConfig{ConfigRevision: *nc.Status.Active}
			nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{
				ConfigMapRef: &ref,
				RolloutRef:   &v1alpha1.RolloutReference{Name: "workers", Revision: 3, Attempt: 1, AssignedAt: metav1.Now()},
			}
		}

		objects = append(objects, node, nc)
	}

	known(s.clusters[0].cache, append(objects, r)...)
	const begin = "a restart of the kubelet makes pods unready until their next probe: "
	for verb, want := range map[string][]string{
		"approve-full":   {"3 nodes go from the local configuration to revision 3, 1 node keeps revision 3", begin + "7 pods on 2 nodes (kubelet 1.34)"},
		"abort-rollback": {"1 node goes from revision 3 to the local configuration, 3 nodes keep the local configuration", begin + "5 pods on 1 node (kubelet 1.34)"},
		"abort": {"3 nodes keep the local configuration, 1 node keeps revision 3",
			"rolled back, 1 node goes from revision 3 to the local configuration, 3 nodes keep the local configuration"},
	} {
		code, body := answer(s, asked(http.MethodGet, "/api/clusters/0/rollouts/workers/effect/"+verb, ""))
		var got struct{ Lines []string }
		assert.NoError(t, json.Unmarshal([]byte(body), &got))
		assert.That(t, code == 200 && slices.Equal(got.Lines, want), "%s: %d %s, want %q", verb, code, body, want)
	}

	code, body := answer(s, asked(http.MethodGet, "/api/clusters/0/rollouts/workers/effect/retry", ""))
	assert.That(t, code == 200 && strings.Contains(body, `["3 nodes go from the local configuration`), "retry: %d %s", code, body)
	code, body = answer(s, asked(http.MethodGet, "/api/clusters/0/rollouts/workers/effect/undo", ""))
	assert.That(t, code == 409 && strings.Contains(body, "has no revision that succeeded"), "undo: %d %s", code, body)
	for _, a := range s.clusters[0].offered(r, "") {
		assert.Equal(t, a.Moves, a.Verb != "pause", a.Verb, "moves nodes")
	}
}
