// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

// protectedField is ConfigOK for a payload that would make one protected field
// different.
func protectedField(cm *corev1.ConfigMap, using, words string) want {
	cause := fmt.Sprintf("refused current (UID: %s): protected field %s", cm.UID, words)
	return want{"False", "ProtectedFields", using, cause, cause}
}

// dropin is the data of a ConfigMap with a drop-in.
func dropin(data string) map[string]string {
	return map[string]string{"kubelet-dropin": nodetest.Upstream + data}
}

// local lays changes over the configuration of the node's own.
func (n *node) local(changes map[string]any) {
	n.t.Helper()
	assert.NoError(n.t, os.WriteFile(n.Node.KubeletConfig(), []byte(n.text(changes)), 0o600))
}

// refusals returns the messages of the Events about refusals on the Node that
// hold words, each as often as it was given.
func (n *node) refusals(words string) (messages []string) {
	n.t.Helper()
	list, err := n.Kube.CoreV1().Events(metav1.NamespaceDefault).List(n.t.Context(), metav1.ListOptions{
		FieldSelector: fields.SelectorFromSet(fields.Set{"involvedObject.kind": "Node", "involvedObject.name": n.Node.Name(), "reason": "ConfigRefused"}).String(),
	})
	assert.NoError(n.t, err)
	for _, e := range list.Items {
		for range max(e.Count, 1) {
			if strings.Contains(e.Message, words) {
				messages = append(messages, e.Message)
			}
		}
	}

	return messages
}

// hides requires that no output of the node contains a secret.
func (n *node) hides(secrets ...string) {
	n.t.Helper()
	nc := assert.Value(n.Get(n.t.Context()))(n.t)
	object := assert.Value(json.Marshal(nc))(n.t)
	log := assert.Value(os.ReadFile(n.Log))(n.t)
	dir := "--dynamic-config-dir=" + n.Dir
	for where, text := range map[string]string{
		"the NodeConfig":           string(object),
		"an event":                 strings.Join(n.refusals(""), "\n"),
		"the log":                  string(log),
		"/configz":                 n.get("/configz"),
		"/configz, grouped":        n.get("/configz?form=grouped"),
		"status":                   n.runs(0, "", []string{"status", dir, "--effective=flat"}),
		"status, grouped, as JSON": n.runs(0, "", []string{"status", dir, "--effective=grouped", "-o", "json"}),
	} {
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				n.t.Errorf("%s shows a secret: ...%s", where, text[max(0, i-100):i+len(secret)])
			}
		}
	}
}

func TestAPayloadThatChangesAProtectedFieldIsRejected(t *testing.T) {
	n := newNode(t, "protected", "--config-trial-duration=1s")
	n.local(map[string]any{"staticPodURLHeader": map[string]any{"X-Token": []string{"s3cret-of-the-node"}}})
	n.Up()
	n.is(localInit)
	kubelet := n.Steady()

	whole := func(changes map[string]any) map[string]string {
		return map[string]string{"kubelet": n.text(changes)}
	}
	const local = "using last-known-good (init)"
	refusals := 0
	for i, c := range []struct {
		name  string
		data  map[string]string
		words string
	}{
		{"the read-only port", whole(map[string]any{"readOnlyPort": 10255}), "readOnlyPort would be 10255, but is 0 locally"},
		{"callers without credentials", whole(map[string]any{"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": n.clientCAFile()},
		}}), "authentication.anonymous.enabled would be true, but is false locally"},
		{"a feature gate", whole(map[string]any{"featureGates": map[string]any{"NodeLogQuery": true}}), "featureGates.NodeLogQuery would be true, but is unset locally"},
		{"a header of the static pod URL", whole(map[string]any{"staticPodURLHeader": map[string]any{"X-Token": []string{"s3cret-of-a-payload"}}}),
			"staticPodURLHeader.X-Token is masked and differs, or may differ, from the local configuration"},
		{"the static pod URL, which holds credentials", dropin("staticPodURL: https://me:s3cret-of-a-url@example.com/s3cret-path?t=s3cret-token\n"), `staticPodURL would be "https://example.com/masked", but is "" locally`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			cm := n.CreateMap(fmt.Sprint(i), c.data)
			n.AssignMap(cm)
			nc := n.is(protectedField(cm, local, c.words))
			if nc.Status.Assigned == nil || nc.Status.Assigned.UID != cm.UID || nc.Status.Active != nil || len(nc.Status.BadConfigs) != 0 {
				t.Errorf("assigned is %+v, active %+v, badConfigs %+v", nc.Status.Assigned, nc.Status.Active, nc.Status.BadConfigs)
			}

			n.Event("Warning", "ConfigRefused", c.words)
			said := n.refusals(string(cm.UID))
			assert.That(t, len(said) == 1, "events are %q, want one", said)
			if disk := n.onDisk(); !disk.Current.IsLocal() || len(disk.Bad) != 0 || disk.Trial != nil {
				t.Errorf("on disk: current %+v, bad %+v, trial %+v", disk.Current, disk.Bad, disk.Trial)
			}

			refusals++
			kubelet.Check(t)
		})
	}

	if said := n.refusals(""); len(said) != refusals {
		t.Errorf("there are %d refusals in the events, want %d: %q", len(said), refusals, said)
	}

	n.runs(0, "", []string{"status", "--dynamic-config-dir=" + n.Dir}, "the local configuration", local+": refused current (UID: ")

	// A drop-in is decoded in any case by the kubelet, and strictly by us.
	cased := n.dropin("cased", "StaticPodPath: /etc\n")
	n.AssignMap(cased)
	n.is(rejected(cased, local, `strict decoding error: unknown field "StaticPodPath"`))
	kubelet.End(t)

	// Fields that are not protected are adopted: with the same header in the
	// payload, and without a header in a drop-in.
	n.good("free", map[string]any{"maxPods": 120})
	laid := n.dropin("laid", "maxPods: 121\n")
	n.proves(laid)
	n.hides("s3cret")
}

// clientCAFile is what the node's own configuration names.
func (n *node) clientCAFile() string {
	n.t.Helper()
	raw := assert.Value(os.ReadFile(n.Node.KubeletConfig()))(n.t)
	for line := range strings.Lines(string(raw)) {
		if file, ok := strings.CutPrefix(strings.TrimSpace(line), "clientCAFile: "); ok {
			return file
		}
	}

	n.t.Fatal("the node has no clientCAFile")

	return ""
}
