// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestParseSteps(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"1", `[{"nodes":1}]`},
		{"1,pause:10m,10%,pause,100%", `[{"nodes":1},{"pause":{"duration":"10m0s"}},{"nodes":"10%"},{"pause":{}},{"nodes":"100%"}]`},
		{" 5 , pause:1h30m , 100% ", `[{"nodes":5},{"pause":{"duration":"1h30m0s"}},{"nodes":"100%"}]`},
	} {
		steps, err := parseSteps(tt.in)
		assert.That(t, err == nil, "%q: %v", tt.in, err)
		got := assert.Value(json.Marshal(steps))(t)
		assert.That(t, string(got) == tt.want, "%q is %s, want %s", tt.in, got, tt.want)
	}
}

func TestTheStepsFlagOfNoStepsIsTheDefault(t *testing.T) {
	none := &v1alpha1.NodeConfigRollout{}
	have := assert.Value(describe.StepsOf(none))(t)
	none.Spec.Strategy.Steps = assert.Value(parseSteps(stepsFlag(nil)))(t)
	got, err := describe.StepsOf(none)
	assert.That(t, err == nil && reflect.DeepEqual(got, have), "without any they are %v, and given again %v (%v)", have, got, err)
}

func TestParseStepsNamesTheWrongStep(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", `step 0: "" is neither`},
		{"1,,2", `step 1: "" is neither`},
		{"0", `step 0: "0" is neither`},
		{"1,0%", `step 1: "0%" is neither`},
		{"101%", `step 0: "101%" is neither`},
		{"+1", `step 0: "+1" is neither`},
		{"01%", `step 0: "01%" is neither`},
		{"99999999999", `is neither`},
		{"1,pause:", `step 1 ("pause:"): "" is not a duration`},
		{"1,pause:10", `step 1 ("pause:10"): "10" is not a duration`},
		{"1,pause:0s", `"0s" is not a duration`},
		{"1,pause:-5m", `"-5m" is not a duration`},
		{"pauses", `step 0: "pauses" is neither`},
		{strings.Repeat("1,", v1alpha1.MaxSteps) + "1", fmt.Sprintf("%s are more than the limit of %d", printable.Count(v1alpha1.MaxSteps+1, "step"), v1alpha1.MaxSteps)},
	} {
		steps, err := parseSteps(tt.in)
		assert.That(t, err != nil && strings.Contains(err.Error(), tt.want), "%q is %v with error %v, want %q", tt.in, steps, err, tt.want)
	}
}

func TestALaterStepWithFewerNodesIsRefused(t *testing.T) {
	for _, tt := range []struct {
		steps   string
		members int32
		want    string // empty: no error
	}{
		{"1,50,10%", 0, ""}, // a rollout without nodes
		{"1,50,10%", 1000, ""},
		{"1,50,10%", 100, "the step of 10% (10 of 100 nodes) follows the step of 50 nodes, but has fewer nodes: "},
		{"1,50,10%", 20, "the step of 10% (2 of 20 nodes) follows the step of 50 nodes"},
		{"1,50,100%", 20, ""}, // both are all nodes
		{"1,10%,100%", 3, ""},
		{"50%,pause:10m,3,100%", 4, ""},
		{"50%,pause:10m,1,100%", 4, "the step of 1 node follows the step of 50% (2 of 4 nodes)"},
		{"5,5,50%,50%", 10, ""},
		{"pause,1,pause:1s", 0, ""},
	} {
		r := &v1alpha1.NodeConfigRollout{}
		var err error
		r.Spec.Strategy.Steps = assert.Value(parseSteps(tt.steps))(t)
		steps := assert.Value(describe.StepsOf(r))(t)
		err = checkGrowth(steps, tt.members)
		assert.That(t, (err == nil) == (tt.want == "") && (err == nil || strings.Contains(err.Error(), tt.want)),
			"%s of %d nodes: %v, want %q", tt.steps, tt.members, err, tt.want)
	}
}

// stoppedRevision adds the ConfigMap of a revision of a rollout's template,
// with the annotation of a stop.
func stoppedRevision(t *testing.T, api *fakeapi.API, r *v1alpha1.NodeConfigRollout, number int64, reason string) v1alpha1.ConfigMapReference {
	t.Helper()
	content := assert.Value(fleet.ContentOf(r.Spec.Template, nil))(t)
	cm := fakeapi.Add(api, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: fleet.RevisionName(r.Name, content.SHA256),
			Labels:      map[string]string{v1alpha1.LabelRollout: r.Name, v1alpha1.LabelRevision: fmt.Sprint(number)},
			Annotations: map[string]string{v1alpha1.AnnotationStopped: reason, v1alpha1.AnnotationStoppedAttempt: "1"}},
		Immutable: new(true), Data: map[string]string{content.Key: string(content.Data)},
	})

	return fakeapi.RefTo(cm)
}

func TestPushOfAStoppedConfigurationNeedsForce(t *testing.T) {
	api := newAPI(t)
	r := api.AddRollout("repush", "repush", fakeapi.Pods(90), nil)
	stoppedRevision(t, api, r, 3, "TooManyFailures")
	r.Spec.Template.Kubelet = fakeapi.Pods(91)
	api.Write(r)
	file := fakeapi.File(t, fakeapi.Header+"maxPods: 90\n")
	const warning = "warning: this configuration failed before: revision 3 was stopped (TooManyFailures)\n"
	api.Run("push", "repush", "-f", file, "--dry-run").Want(t, command.ExitComplete, []string{"dry run: nothing was written\n"}, warning)
	api.Run("push", "repush", "-f", file, "--yes").Want(t, command.ExitHalted, nil, warning,
		"error: rollout repush was not changed: push another configuration, or use --force if the cause of the failure is repaired\n")
	now := r.DeepCopy()
	api.Read(now)
	assert.Equal(t, now.Generation, r.Generation, "generation")

	got := api.Run("push", "repush", "-f", fakeapi.File(t, fakeapi.Header+"maxPods: 92\n"), "--dry-run")
	assert.That(t, got.Code == 0 && !strings.Contains(got.Err, "stopped"), "another configuration: exit %d: %s", got.Code, got.Err)
	api.Run("push", "repush", "-f", file, "--yes", "--force").Want(t, command.ExitComplete, []string{"rollout repush updated"}, warning)
}

func TestPushOfSettingsOfAStoppedRolloutOnlyWarns(t *testing.T) {
	api := newAPI(t)
	r := api.AddRollout("rehalt", "rehalt", fakeapi.Pods(90), nil)
	ref := stoppedRevision(t, api, r, 2, "Aborted")
	r.Status.ObservedGeneration = r.Generation
	r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: ref}
	r.Status.Phase, r.Status.Halt = v1alpha1.RolloutHalted, &v1alpha1.RolloutHalt{Attempt: 1, Reason: v1alpha1.HaltAborted}
	api.Report(r)
	api.Run("push", "rehalt", "-f", fakeapi.File(t, fakeapi.Header+"maxPods: 90\n"), "--max-failures", "3", "--yes").Want(t, command.ExitComplete,
		[]string{"rollout rehalt updated"}, "warning: the rollout stays halted at revision 2 (Aborted): push a fixed configuration\n")
}

func TestPushSaysWhatItReplacesBeforeItsEnd(t *testing.T) {
	api := newAPI(t)
	r := api.AddRollout("busy", "busy", fakeapi.Pods(90), nil)
	push := []string{"push", "busy", "-f", fakeapi.File(t, fakeapi.Header+"maxPods: 91\n"), "--dry-run"}
	api.Run(push...).Want(t, command.ExitComplete, nil, "note: the controller has not begun with the last change of the rollout, which may be somebody else's: it is replaced\n")
	ref := stoppedRevision(t, api, r, 1, "")
	r.Status.ObservedGeneration, r.Status.UpdateRevision = r.Generation, &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: ref}
	for phase, want := range map[v1alpha1.RolloutPhase][]string{
		v1alpha1.RolloutProgressing: {"note: revision 1 is replaced before its end (Progressing, 1 of 0 nodes updated)\n"}, v1alpha1.RolloutComplete: nil,
	} {
		r.Status.Phase, r.Status.Nodes.Updated = phase, 1
		api.Report(r)
		api.Run(push...).Want(t, command.ExitComplete, nil, want...)
	}
}

func TestPushRefusesALaterStepWithFewerNodes(t *testing.T) {
	api := newAPI(t)
	for _, name := range []string{"shrinks-a", "shrinks-b", "shrinks-c"} {
		api.AddAgent(name, "shrinks", nil, nil)
	}

	push := func(steps string, more ...string) fakeapi.Result {
		return api.Run(append([]string{"push", "shrinks", "-f", fakeapi.File(t, fakeapi.Header+"maxPods: 90\n"), "--selector", "pool=shrinks", "--steps", steps}, more...)...)
	}
	push("1,50,10%", "--yes").WantError(t, "--steps: the step of 10% (1 of 3 nodes) follows the step of 50 nodes, but has fewer nodes: a step says how many nodes shall be updated when it is done, not how many more; nothing was changed")
	push("1,2,10%,100%", "--dry-run").WantError(t, "the step of 10% (1 of 3 nodes) follows the step of 2 nodes")
	push("1,10%,100%", "--yes").Want(t, command.ExitComplete, []string{"rollout shrinks created"})

	// Stored steps stay valid, in a push without --steps too.
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "shrinks"}}
	api.Read(r)
	r.Spec.Strategy.Steps[0].Nodes.IntVal = 3
	api.Write(r)
	api.Run("push", "shrinks", "-f", fakeapi.File(t, fakeapi.Header+"maxPods: 91\n"), "--yes").Want(t, command.ExitComplete, []string{"rollout shrinks updated"})
}

func TestPushSaysThatAnAutoscalerPredictsTheRoom(t *testing.T) {
	api := newAPI(t)
	for i, provider := range []string{"aws:///zone/i-1", "aws:///zone/i-2", "kind://docker/kind/worker", "k3s://worker", ""} {
		name := "scaled-" + string(rune('a'+i))
		node := api.AddNode(name, "scaled", "")
		if node.Spec.ProviderID = provider; i == 0 {
			node.Labels["karpenter.sh/nodepool"] = "general"
		}

		assert.NoError(t, api.Update(t.Context(), node))
		api.AddNodeConfig(name, nil, nil)
	}

	push := func(fields string, more ...string) fakeapi.Result {
		return api.Run(append([]string{"push", "scaled", "-f", fakeapi.File(t, fakeapi.Header+fields), "--drop-in", "--selector", "pool=scaled"}, more...)...)
	}
	push("maxPods: 90\nevictionHard: {memory.available: 1Gi, nodefs.available: 5%}\n", "--dry-run").Want(t, command.ExitComplete, nil,
		"note: the room for pods changes (evictionHard, maxPods) on 1 node (label karpenter.sh/nodepool), 1 node (provider ID aws://): "+
			"Karpenter predicts the room of new nodes from spec.kubelet of their NodeClass, and replaces nodes when that changes; see docs/autoscalers.md\n")
	push("maxPods: 90\n", "--yes")
	for _, fields := range []string{"maxPods: 90\nregistryBurst: 20\n", "maxPods: 90\ncontainerLogMaxFiles: 7\n", "maxPods: 90\nenforceNodeAllocatable: [none]\n"} {
		r := push(fields, "--dry-run")
		assert.That(t, !strings.Contains(r.Err, "autoscalers.md"), "the room does not change: %s", r.Err)
	}
}
