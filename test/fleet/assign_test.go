// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// file writes a configuration with these fields, and returns its path. The
// names of files are the names of ConfigMaps.
func (s *scenario) file(name, fields string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), name+".yaml")
	s.do(os.WriteFile(path, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+fields+"\n"), 0o600))
	return path
}

// assign runs `kubectl evenkeel assign`, which must exit with code and say all
// these words in this order. It returns what it said.
func (s *scenario) assign(code int, args []string, words ...string) string {
	s.t.Helper()
	out := s.plugin(code, append([]string{"assign"}, args...)...)
	rest := out
	for _, w := range words {
		_, after, found := strings.Cut(rest, w)
		assert.Must(s.t, found, "assign %q does not say %q (in this order) but:\n%s", args, w, out)
		rest = after
	}

	return out
}

func TestAssignReportsTheResultOnTheNode(t *testing.T) {
	t.Parallel()
	s := play(t, "assign", 1, faulty("crashloop,field=maxPods:7", "reject,field=maxPods:8"))
	node := s.node(0)
	dropIn := func(file string, flags ...string) []string {
		return append([]string{node, "-f", file, "--drop-in"}, flags...)
	}
	s.assign(0, []string{node, "--local"}, "node assign-0 has no assignment and runs its local configuration: nothing changes\n")
	good := s.file("more-pods", "maxPods: 120")
	s.assign(0, dropIn(good, "--dry-run"),
		"Node assign-0 runs its local configuration", "Changes:\n",
		"the node's local configuration -> a drop-in, merged over the node's local configuration\nmaxPods: unset -> 120\n",
		"Preflight: node assign-0 accepts this configuration: it changes maxPods: 110 -> 120\n", "dry run: nothing was assigned\n")
	assert.Equal(t, s.nodeConfig(node).Generation, 1, "the generation after a dry run")
	s.assign(0, dropIn(good, "--yes"),
		"node assign-0 is assigned ConfigMap evenkeel-system/more-pods.",
		"node assign-0 runs ConfigMap evenkeel-system/more-pods.", "which has passed its trial and is its last-known-good configuration\n")
	kept := s.nodeConfig(node).Spec.ConfigSource.ConfigMapRef.Name
	s.assign(0, dropIn(good), "node assign-0 already has this assignment, and runs ConfigMap ", ": nothing changes\n")

	// A bad one: the node goes back by itself, and remembers it, under another
	// name too.
	bad := s.file("few-pods", "maxPods: 7")
	s.assign(2, dropIn(bad, "--yes"), "maxPods: 120 -> 7\n", "node assign-0 is assigned ",
		"error: node assign-0 rolled back to ConfigMap evenkeel-system/"+kept, " (CrashLooped): ", "evenkeel-agent forget ",
		"the assignment stays until you assign another configuration, or --local")
	s.assign(2, dropIn(bad, "--yes"),
		"node assign-0 already has this assignment: nothing is written\n", "error: node assign-0 rolled back to ")
	s.assign(0, dropIn(good, "--yes"), "note: node assign-0: ConfigOK is not True\n",
		"note: node assign-0 does not run its present assignment, ConfigMap evenkeel-system/few-pods.", "; this replaces it\n",
		"no field differs\n", "its last-known-good configuration\n")
	s.assign(2, dropIn(s.file("same-pods", "maxPods: 7"), "--yes"),
		"error: this configuration failed on node assign-0 before: ", "crash-looped", "nothing was changed\n", "evenkeel-agent forget ")

	// One that the kubelet rejects: nothing is written without --force.
	rejected := s.file("no-pods", "maxPods: 8")
	const refusal = "Preflight: node assign-0 refuses this configuration (ValidationFailed: "
	before := s.nodeConfig(node).Generation
	s.assign(2, dropIn(rejected, "--dry-run"), refusal, "dry run: nothing was assigned\n")
	s.assign(2, dropIn(rejected, "--yes"), refusal,
		"error: node assign-0 refuses the configuration (ValidationFailed); correct the configuration, ",
		"use --force to assign it anyway; nothing was assigned\n")
	assert.Equal(t, s.nodeConfig(node).Generation, before, "the generation after the refusals")
	s.assign(2, dropIn(rejected, "--yes", "--force"), refusal,
		"error: node assign-0 refused the configuration (ValidationFailed): ",
		"its kubelet was not stopped: it runs ConfigMap evenkeel-system/"+kept)

	// And back.
	s.assign(0, []string{node, "--local", "--yes"},
		"note: node assign-0 will forget its last-known-good configuration, ConfigMap evenkeel-system/"+kept,
		"a drop-in, merged over the node's local configuration -> the node's local configuration\nmaxPods: 120 -> unset\n",
		"node assign-0 is assigned its local configuration\n", "node assign-0 runs its local configuration")
	s.assign(0, []string{node, "--local"},
		"node assign-0 already has this assignment, and runs its local configuration", ": nothing changes\n")
	nc := s.nodeConfig(node)
	assert.That(t, nc.Spec.ConfigSource.Local != nil && nc.Status.Active == nil && nc.Status.LastKnownGood == nil,
		"it is assigned %+v and runs %+v", nc.Spec.ConfigSource, nc.Status)
}
