// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// file writes a configuration with these fields, and returns its path. The
// names of files are the names of ConfigMaps, so that they have the scenario's
// in front.
func (s *scenario) file(name, fields string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), s.name+"-"+name+".yaml")
	s.do(os.WriteFile(path, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+fields+"\n"), 0o600))
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		for _, cm := range s.kept(ctx, name) {
			assert.OK(s.t, kube.Delete(ctx, &cm))
		}
	})

	return path
}

// kept are the ConfigMaps that hold contents of a file.
func (s *scenario) kept(ctx context.Context, name string) []corev1.ConfigMap {
	s.t.Helper()
	list := &corev1.ConfigMapList{}
	s.do(kube.List(ctx, list, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/managed-by": "kubectl-evenkeel"}))
	return slices.DeleteFunc(list.Items, func(cm corev1.ConfigMap) bool { return !strings.HasPrefix(cm.Name, s.name+"-"+name+".") })
}

// assign runs `kubectl evenkeel assign`, which must exit with code and say all
// these words in this order. It returns what it said.
func (s *scenario) assign(code int, args []string, words ...string) string {
	s.t.Helper()
	out := s.plugin(code, append([]string{"assign"}, args...)...)
	rest := out
	for _, w := range words {
		_, after, found := strings.Cut(rest, w)
		if !found {
			s.t.Errorf("assign %q does not say %q (in this order) but:\n%s", args, w, out)
			continue
		}

		rest = after
	}

	return out
}

func TestAssignReportsTheResultOnTheNode(t *testing.T) {
	t.Parallel()
	s := play(t, "assign", 3, faulty("crashloop,field=maxPods:7", "reject,field=maxPods:8"))
	node := s.node(0)
	good := s.file("more-pods", "maxPods: 120")

	s.assign(0, []string{node, "-f", good, "--drop-in", "--dry-run"},
		"Node assign-0 runs its local configuration", "Changes:\n",
		"the node's local configuration -> a drop-in, merged over the node's local configuration\nmaxPods: unset -> 120\n",
		"Preflight: node assign-0 accepts this configuration: it changes maxPods: 110 -> 120\n", "dry run: nothing was assigned\n")
	n := len(s.kept(t.Context(), "more-pods"))
	assert.That(t, n == 0 && s.nodeConfig(node).Generation == 1, "a dry run left %d ConfigMaps", n)
	s.assign(0, []string{node, "-f", good, "--drop-in", "--yes"},
		"node assign-0 is assigned ConfigMap evenkeel-system/assign-more-pods.",
		"node assign-0 runs ConfigMap evenkeel-system/assign-more-pods.", "which has passed its trial and is its last-known-good configuration\n")
	kept := s.kept(t.Context(), "more-pods")
	assert.Must(t, len(kept) == 1 && kept[0].Immutable != nil && *kept[0].Immutable && kept[0].Data["kubelet-dropin"] != "",
		"the content is kept in %+v, want one immutable ConfigMap", kept)
	before := s.nodeConfig(node)
	if ref := before.Spec.ConfigSource.ConfigMapRef; ref.UID != kept[0].UID || len(ref.SHA256) != 64 || before.Generation != 2 {
		t.Errorf("generation %d assigns %+v, want %s", before.Generation, ref, kept[0].UID)
	}

	// Once more changes nothing, and another node is given the same object.
	s.assign(0, []string{node, "-f", good, "--drop-in"}, "node assign-0 already has this assignment, and runs ConfigMap ", ": nothing changes\n")
	s.assign(0, []string{s.node(1), "-f", good, "--drop-in", "--yes", "--wait-for=trial"}, "node assign-1 runs ConfigMap evenkeel-system/"+kept[0].Name)
	if n := len(s.kept(t.Context(), "more-pods")); n != 1 || s.nodeConfig(node).Generation != before.Generation {
		t.Errorf("there are %d ConfigMaps and generation %d, want 1 and %d", n, s.nodeConfig(node).Generation, before.Generation)
	}

	// A bad one: the node goes back by itself, and remembers it, under another
	// name too.
	bad := s.file("few-pods", "maxPods: 7")
	s.assign(2, []string{node, "-f", bad, "--drop-in", "--yes"}, "maxPods: 120 -> 7\n", "node assign-0 is assigned ",
		"error: node assign-0 rolled back to ConfigMap evenkeel-system/"+kept[0].Name, " (CrashLooped): ", "evenkeel-agent forget ",
		"the assignment stays until you assign another configuration, or --local")
	generation := s.nodeConfig(node).Generation
	s.assign(2, []string{node, "-f", bad, "--drop-in", "--yes"}, "node assign-0 already has this assignment: nothing is written\n", "error: node assign-0 rolled back to ")
	s.assign(0, []string{node, "-f", good, "--drop-in", "--yes"}, "note: node assign-0: ConfigOK is not True\n",
		"note: node assign-0 does not run its present assignment, ConfigMap evenkeel-system/assign-few-pods.", "; this replaces it\n", "no field differs\n", "its last-known-good configuration\n")
	for _, again := range []string{bad, s.file("same-pods", "maxPods: 7")} {
		s.assign(2, []string{node, "-f", again, "--drop-in", "--yes"}, "error: this configuration failed on node assign-0 before: ", "crash-looped", "nothing was changed\n", "evenkeel-agent forget ")
	}

	now := s.nodeConfig(node).Generation
	assert.That(t, now == generation+1, "generation %d, want %d: a bad configuration is not assigned again", now, generation+1)

	// One that the kubelet rejects: nothing is written without --force.
	rejected := s.file("no-pods", "maxPods: 8")
	generation = s.nodeConfig(node).Generation
	refusal := "Preflight: node assign-0 refuses this configuration (ValidationFailed: "
	s.assign(2, []string{node, "-f", rejected, "--drop-in", "--dry-run"}, refusal, "dry run: nothing was assigned\n")
	s.assign(2, []string{node, "-f", rejected, "--drop-in", "--yes"}, refusal,
		"error: node assign-0 refuses the configuration (ValidationFailed); correct the configuration, or use --force to assign it anyway; nothing was assigned\n")
	if now := s.nodeConfig(node).Generation; now != generation || len(s.kept(t.Context(), "no-pods")) != 0 {
		t.Errorf("a refusal in the preflight has changed the NodeConfig: generation %d, want %d", now, generation)
	}

	s.assign(2, []string{node, "-f", rejected, "--drop-in", "--yes", "--force"}, refusal,
		"error: node assign-0 refused the configuration (ValidationFailed): ", "its kubelet was not stopped: it runs ConfigMap evenkeel-system/"+kept[0].Name)

	// And back.
	s.assign(0, []string{node, "--local", "--yes"}, "note: node assign-0 will forget its last-known-good configuration, ConfigMap evenkeel-system/"+kept[0].Name,
		"a drop-in, merged over the node's local configuration -> the node's local configuration\nmaxPods: 120 -> unset\n",
		"node assign-0 is assigned its local configuration\n", "node assign-0 runs its local configuration")
	s.assign(0, []string{node, "--local"}, "node assign-0 already has this assignment, and runs its local configuration", ": nothing changes\n")
	if nc := s.nodeConfig(node); nc.Spec.ConfigSource.Local == nil || nc.Status.Active != nil || nc.Status.LastKnownGood != nil {
		t.Errorf("it is assigned %+v and runs %+v", nc.Spec.ConfigSource, nc.Status)
	}

	s.assign(0, []string{s.node(2), "--local"}, "node assign-2 has no assignment and runs its local configuration: nothing changes\n")
}
