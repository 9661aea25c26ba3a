// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

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
	for _, e := range assert.Value(n.Events(n.t.Context(), "ConfigRefused"))(n.t) {
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
	object := assert.Value(json.Marshal(n.config()))(n.t)
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

	const local = "using last-known-good (init)"
	for i, c := range []struct {
		name  string
		data  map[string]string
		words string
	}{
		{"callers without credentials", dropin("authentication: {anonymous: {enabled: true}}\n"),
			"authentication.anonymous.enabled would be true, but is false locally"},
		{"a header of the static pod URL", dropin("staticPodURLHeader: {X-Token: [s3cret-of-a-payload]}\n"),
			"staticPodURLHeader.X-Token is masked and differs, or may differ, from the local configuration"},
		{"the static pod URL, which holds credentials", dropin("staticPodURL: https://me:s3cret-of-a-url@example.com/s3cret-path?t=s3cret-token\n"),
			`staticPodURL would be "https://example.com/masked", but is "" locally`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			cm := n.CreateMap(fmt.Sprint(i), c.data)
			n.AssignMap(cm)
			cause := fmt.Sprintf("refused current (UID: %s): protected field %s", cm.UID, c.words)
			nc := n.is(want{"False", "ProtectedFields", local, cause, cause})
			if nc.Status.Assigned == nil || nc.Status.Assigned.UID != cm.UID || nc.Status.Active != nil || len(nc.Status.BadConfigs) != 0 {
				t.Errorf("assigned is %+v, active %+v, badConfigs %+v", nc.Status.Assigned, nc.Status.Active, nc.Status.BadConfigs)
			}

			n.Event("Warning", "ConfigRefused", c.words)
			assert.Equal(t, len(n.refusals(string(cm.UID))), 1, "events about the refusal")
			if disk := n.onDisk(); !disk.Current.IsLocal() || len(disk.Bad) != 0 || disk.Trial != nil {
				t.Errorf("on disk: current %+v, bad %+v, trial %+v", disk.Current, disk.Bad, disk.Trial)
			}

			kubelet.Check(t)
		})
	}

	n.runs(0, "", []string{"status", "--dynamic-config-dir=" + n.Dir}, "the local configuration", local+": refused current (UID: ")
	kubelet.End(t)

	// Fields that are not protected are adopted: with the same header in the
	// payload, and without a header in a drop-in.
	n.good("free", map[string]any{"maxPods": 120})
	laid := n.dropin("laid", "maxPods: 121\n")
	n.proves(laid)
	n.hides("s3cret")
}
