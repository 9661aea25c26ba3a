// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// Upstream begins a KubeletConfiguration of the form that the kubelet reads.
const Upstream = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// Controlled starts a controller, which ends with the test.
func (n *Subject) Controlled() {
	n.T.Helper()
	controller := assert.Value(n.Controller(n.T.Context()))(n.T)
	n.T.Cleanup(func() {
		assert.OK(n.T, controller.Stop(time.Minute))
		if log, err := os.ReadFile(controller.Log); n.T.Failed() {
			n.T.Logf("the controller said (%v):\n%s", err, log)
		}
	})
}

// Plugin runs `kubectl evenkeel`, which must exit with code and say all the
// words.
func (n *Subject) Plugin(code int, args []string, words ...string) {
	n.T.Helper()
	var out bytes.Buffer
	got, err := n.Evenkeel(n.T.Context(), &out, args...)
	if err != nil || got != code {
		n.T.Fatalf("%q: exit code %d, %v; want %d:\n%s", args, got, err, code, &out)
	}

	for _, w := range words {
		if !strings.Contains(out.String(), w) {
			n.T.Errorf("%q does not say %q but:\n%s", args, w, &out)
		}
	}
}

// File writes a file and returns its path.
func (n *Subject) File(content string) string {
	n.T.Helper()
	path := filepath.Join(n.T.TempDir(), "config.yaml")
	assert.NoError(n.T, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// DropIn returns a drop-in with these fields.
func (n *Subject) DropIn(fields map[string]any) string {
	n.T.Helper()
	data := assert.Value(yaml.Marshal(fields))(n.T)
	return Upstream + string(data)
}

// Push pushes fields as a drop-in to a rollout.
func (n *Subject) Push(rollout string, fields map[string]any, flags ...string) {
	n.T.Helper()
	n.Plugin(0, append([]string{"push", rollout, "-f", n.File(n.DropIn(fields)), "--drop-in", "--yes"}, flags...))
}

// RolloutEnds follows a rollout until it ends, with this exit code of `rollout
// status`.
func (n *Subject) RolloutEnds(rollout string, code int, words ...string) {
	n.T.Helper()
	n.Plugin(code, []string{"rollout", "status", rollout, "-w", "--timeout=" + Patience.String()}, words...)
}
