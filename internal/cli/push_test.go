package cli

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
)

// stoppedRevision creates the ConfigMap of a revision of a rollout's template, with the annotation of a stop.
func stoppedRevision(t *testing.T, r *v1alpha1.NodeConfigRollout, number int64, reason string) v1alpha1.ConfigMapReference {
	t.Helper()
	content, err := policy.ContentOf(r.Spec.Template, nil)
	if err != nil {
		t.Fatal(err)
	}
	cm := createRevision(t, r.Name, number, "maxPods: 1\n") // for its labels
	if err := admin.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	cm.ObjectMeta = metav1.ObjectMeta{Namespace: cm.Namespace, Name: policy.RevisionName(r.Name, content.SHA256), Labels: cm.Labels,
		Annotations: map[string]string{v1alpha1.AnnotationStopped: reason, v1alpha1.AnnotationStoppedAttempt: "1"}}
	cm.Data = map[string]string{content.Key: content.Data}
	create(t, cm)
	return v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: content.SHA256}
}

func TestPushOfAStoppedConfigurationNeedsForce(t *testing.T) {
	r := createRollout(t, "repush", "repush", pods(90), nil)
	stoppedRevision(t, r, 3, "TooManyFailures")
	r.Spec.Template.Kubelet.Raw = []byte(pods(91))
	if err := admin.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	file := write(t, header+"maxPods: 90\n")
	const warning = "warning: this is the configuration of revision 3, which was stopped (TooManyFailures); nodes on which it failed refuse it until: kubectl evenkeel rollout retry repush\n"
	evenkeel(t, "push", "repush", "-f", file, "--dry-run").wantExit(t, command.ExitComplete, []string{"dry run: nothing was written\n"}, warning)
	evenkeel(t, "push", "repush", "-f", file, "--yes").wantExit(t, command.ExitHalted, nil, warning,
		"error: rollout repush was not changed: push another configuration, or use --force if the cause of the stop is repaired\n")
	now := &v1alpha1.NodeConfigRollout{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "repush"}, now); err != nil || now.Generation != r.Generation {
		t.Errorf("generation %d, want %d: %v", now.Generation, r.Generation, err)
	}
	if got := evenkeel(t, "push", "repush", "-f", write(t, header+"maxPods: 92\n"), "--dry-run"); got.code != 0 || strings.Contains(got.err, "stopped") {
		t.Errorf("another configuration: exit %d: %s", got.code, got.err)
	}
	evenkeel(t, "push", "repush", "-f", file, "--yes", "--force").wantExit(t, command.ExitComplete, []string{"rollout repush updated"}, warning)
}

func TestPushOfSettingsOfAStoppedRolloutOnlyWarns(t *testing.T) {
	r := createRollout(t, "rehalt", "rehalt", pods(90), nil)
	ref := stoppedRevision(t, r, 2, "Aborted")
	r.Status.ObservedGeneration = r.Generation
	r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: ref}
	if err := admin.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	evenkeel(t, "push", "rehalt", "-f", write(t, header+"maxPods: 90\n"), "--max-failures", "3", "--yes").wantExit(t, command.ExitComplete,
		[]string{"rollout rehalt updated"}, "warning: this is the configuration of revision 2, which was stopped (Aborted) and stays so; to try it again: kubectl evenkeel rollout retry rehalt\n")
}

func TestPushRefusesValuesOfWrongTypes(t *testing.T) {
	file := write(t, header+"maxPods: many\nsystemReserved: {cpu: 1}\n")
	const want = ": maxPods must be a whole number from -2147483648 to 2147483647, not \"many\"; systemReserved.cpu must be text, in quotes, not 1; nothing was"
	evenkeel(t, "push", "wrongly", "-f", file, "--all-nodes", "--yes").wantError(t, want)
	createNode(t, "wrongly-a", "wrongly", "")
	createNodeConfig(t, "wrongly-a", nil, nil)
	evenkeel(t, "assign", "wrongly-a", "-f", file, "--yes").wantError(t, want)
	evenkeel(t, "preflight", "-f", file, "--all-nodes").wantError(t, want)
	err := admin.Get(t.Context(), client.ObjectKey{Name: "wrongly"}, &v1alpha1.NodeConfigRollout{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the rollout was created: %v", err)
	}
}

func TestPushAndAssignNameProtectedFields(t *testing.T) {
	createNode(t, "guards-a", "guards", "")
	createNodeConfig(t, "guards-a", nil, nil)
	file := write(t, header+"authentication: {anonymous: {enabled: true}}\n")
	const want = "note: authentication.anonymous.enabled is a protected field: a node refuses a value that differs from its local configuration, unless its agent is started with --protected-fields=-authentication.anonymous.enabled\n"
	for _, args := range [][]string{{"push", "guards", "--selector", "pool=guards"}, {"assign", "guards-a"}} {
		evenkeel(t, append(args, "-f", file, "--drop-in", "--dry-run")...).wantExit(t, command.ExitComplete, nil, want)
	}
}

func TestPushRefusesALaterStepWithFewerNodes(t *testing.T) {
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(admin.Delete(context.Background(), &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "shrinks"}})); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"shrinks-a", "shrinks-b", "shrinks-c"} {
		createNode(t, name, "shrinks", "")
		createNodeConfig(t, name, nil, nil)
	}
	push := func(steps string, more ...string) result {
		return evenkeel(t, append([]string{"push", "shrinks", "-f", write(t, header+"maxPods: 90\n"), "--selector", "pool=shrinks", "--steps", steps}, more...)...)
	}
	push("1,50,10%", "--yes").wantError(t, "--steps: the step of 10% (1 of 3 nodes) follows the step of 50 nodes, but has fewer nodes: a step says how many nodes shall be updated when it is done, not how many more; nothing was changed")
	push("50%,10%,100%", "--yes").wantError(t, "spec.strategy.steps must not go down, but go 50%, 10%, 100%")
	push("1,2,10%,100%", "--dry-run").wantError(t, "the step of 10% (1 of 3 nodes) follows the step of 2 nodes")
	push("1,10%,100%", "--yes").wantExit(t, command.ExitComplete, []string{"rollout shrinks created"})

	// Stored steps stay valid, in a push without --steps too.
	r := &v1alpha1.NodeConfigRollout{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "shrinks"}, r); err != nil {
		t.Fatal(err)
	}
	r.Spec.Strategy.Steps[0].Nodes.IntVal = 3
	if err := admin.Update(t.Context(), r); err != nil {
		t.Fatalf("the API server refuses steps that shrink: %v", err)
	}
	evenkeel(t, "push", "shrinks", "-f", write(t, header+"maxPods: 91\n"), "--yes").wantExit(t, command.ExitComplete, []string{"rollout shrinks updated"})
}
