// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

const planned = `apiVersion: evenkeel.dev/v1alpha1
kind: NodeConfigRollout
metadata: {name: planned}
spec:
  allNodes: true
  template: {kubelet: {apiVersion: evenkeel.dev/v1alpha1, kind: KubeletConfiguration, resources: {maxPods: 120}}}
`

func TestTheGraphHasColorsOnlyOnRequest(t *testing.T) {
	m := rollout.Model{TakeUp: time.Second, Trial: time.Minute, Fail: time.Second, Failing: 0.5}
	r := assert.Value(ParseManifest([]byte(planned)))(t)
	f := assert.Value(makeUp(r, 10, 1))(t)
	var plain, colored bytes.Buffer
	v := newSimulationView(rollout.Simulate(f.Input, f.Nodes, m), m, false)
	v.print(&plain, false)
	v.print(&colored, true)
	assert.That(t, !strings.Contains(plain.String(), "\x1b") && strings.Contains(colored.String(), "\x1b"),
		"plain:\n%q\ncolored:\n%q", plain.String(), colored.String())
}

func TestTheGraphOfOneNodeIsOneLineHigh(t *testing.T) {
	v := simulationView{DurationSeconds: 600, Samples: []sampleView{{}, {AfterSeconds: 300, Nodes: v1alpha1.RolloutCounts{Updated: 1}}}}
	lines := strings.Split(v.plot(false), "\n")
	assert.That(t, len(lines) == 4 && strings.Contains(lines[0], "1┤") && strings.Contains(lines[1], "0┼") &&
		strings.HasPrefix(lines[2], "    0s "), "the plot is\n%s", strings.Join(lines, "\n"))

	done := simulationView{DurationSeconds: 1, Samples: []sampleView{{Nodes: v1alpha1.RolloutCounts{Updated: 1}}}}
	lines = strings.Split(done.plot(false), "\n")
	assert.That(t, strings.HasPrefix(lines[len(lines)-2], "    0s "), "the plot of what is done is\n%s", strings.Join(lines, "\n"))
}

func TestPlansWaitForWindowsAndEstimateTheEnd(t *testing.T) {
	plan := func(nodes int, window string) (*PlanReport, string) {
		t.Helper()
		manifest := planned + "  trial: {configTrialDuration: 2m}\n  strategy: {windows: [" + window + "], maxUnavailable: 1}\n"
		r := assert.Value(ParseManifest([]byte(manifest)))(t)
		f := assert.Value(makeUp(r, nodes, 1))(t)
		m := assert.Value(planOptions{}.model())(t)
		v := assert.Value(newPlanReport(t.Context(), f, m))(t)
		v.Simulation = newSimulationView(v.run, m, v.windows)
		var out bytes.Buffer
		v.print(&out)
		v.Simulation.print(&out, false)

		return v, out.String()
	}
	opens := time.Now().UTC().Add(5 * time.Hour).Truncate(time.Minute)
	schedule := fmt.Sprintf("schedule: \"%d %d * * *\", duration: 5m", opens.Minute(), opens.Hour())
	end := opens.Add(24*time.Hour + 2*time.Minute + query.AnswerTime)
	v, text := plan(2, "{"+schedule+", finish: Within}") // one node each day: a second trial would not end in the window
	assert.That(t, v.EndTime != nil && v.EndTime.Equal(end) && v.Phase == v1alpha1.RolloutWaiting && len(v.Batches) == 2 &&
		strings.Contains(v.Message, "waiting until "+opens.Format(time.RFC3339)), "the plan is %+v, want the end %s", v, end)

	for _, want := range []string{"it ends after about 29h", ", at " + end.Format(time.RFC3339) + ": Complete. A trial takes 2m.\n", "Result                Complete, after 29h"} {
		assert.That(t, strings.Contains(text, want), "the output is %q, want %q", text, want)
	}

	v, _ = plan(2, "{"+schedule+"}")
	assert.That(t, v.EndTime.Equal(opens.Add(2*(2*time.Minute+query.AnswerTime))), "with finish: Anytime it ends at %s", v.EndTime)
	v, text = plan(400, "{"+schedule+", finish: Within}")
	assert.That(t, v.EndTime == nil && strings.Contains(text, "The rollout is not complete within 366d"), "the plan is %+v:\n%s", v, text)
	if _, text = plan(2, "{"+strings.Replace(schedule, "5m", "2m", 1)+", finish: Within}"); !strings.Contains(text, "No node is assigned the revision: Waiting: revision 1: 0 of 2 nodes updated; no window until ") {
		t.Errorf("the output is %s", text)
	}
}

func TestAPlanOfARolloutWithoutSelectorIsAnError(t *testing.T) {
	_, err := planOf(t.Context(), fakeAPI(t, interceptor.Funcs{}), &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "empty"}})
	assert.ErrorHas(t, err, "rollout empty is invalid: spec.nodeSelector is empty")
}

func TestAnInterruptedPlanIsAnError(t *testing.T) {
	stop, cancel := context.WithCancel(t.Context())
	cancel()
	r := assert.Value(ParseManifest([]byte(planned)))(t)
	f := assert.Value(makeUp(r, 5, 1))(t)
	assert.Is(t, assert.Err(newPlanReport(stop, f, rollout.Model{})), context.Canceled, "interrupted")
}

func newAPI(t *testing.T) *fakeapi.API {
	t.Helper()
	return fakeapi.New(t, Command, PushCommand, PreflightCommand)
}

const inPool = `apiVersion: evenkeel.dev/v1alpha1
kind: NodeConfigRollout
metadata: {name: planned}
spec:
  nodeSelector: {matchLabels: {pool: planned}}
  template:
    kubelet: {apiVersion: evenkeel.dev/v1alpha1, kind: KubeletConfiguration, resources: {maxPods: 120}, trial: {configTrialDuration: 2m}}
  strategy:
    maxUnavailable: 20%
    topologyKey: topology.kubernetes.io/zone
    maxDomainsInFlight: 1
    steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}]
`

func TestPlanOfSimulatedNodes(t *testing.T) {
	api := newAPI(t)
	file := fakeapi.File(t, inPool)
	api.Run("rollout", "plan", "-f", file, "--nodes", "20", "--zones", "2").WantOutput(t,
		"1 1 node 0s 1 zone-", "2 100% 2m5s 4 zone-",
		"If every node is healthy, it ends after about ", ": Complete. A trial takes 2m.\n",
		"It waits for approval once (kubectl evenkeel rollout approve planned), which is not included.\n")
	v := fakeapi.Decoded[PlanReport](t, api.Run("rollout", "plan", "-f", file, "--nodes", "20", "--zones", "2", "-o", "json"))
	seen := map[string]bool{}
	for _, b := range v.Batches {
		assert.That(t, len(b.Zones) == 1 && len(b.Nodes) <= 4, "a batch of %d nodes in %v", len(b.Nodes), b.Zones)
		for _, n := range b.Nodes {
			seen[n] = true
		}
	}

	assert.That(t, len(seen) == 20 && v.End == v1alpha1.RolloutComplete && v.Approvals == 1 && v.TrialSeconds == 120 &&
		v.Nodes.Pending == 20 && v.Simulation == nil, "%d nodes in batches, plan %+v", len(seen), v)
}

func TestPlanShortensAListOfManyBatches(t *testing.T) {
	api := newAPI(t)
	file := fakeapi.File(t, strings.Replace(inPool, "maxUnavailable: 20%", "maxUnavailable: 1", 1))
	got := api.Run("rollout", "plan", "-f", file, "--nodes", "40")
	got.WantOutput(t, "\n19 100% ", "... 20 more batches; -o json has all\n", "40 100% ")
	assert.Equal(t, strings.Count(got.Out, "zone-1:1"), 20, "batches in", got.Out)
	api.Run("rollout", "plan", "-f", fakeapi.File(t, strings.Replace(inPool, "maxUnavailable: 20%", "maxUnavailable: 0", 1)), "--nodes", "5").WantOutput(t,
		"No node is assigned the revision: Progressing: ", "maxUnavailable is 0")
	slow := strings.NewReplacer("maxUnavailable: 20%", "maxUnavailable: 1", "configTrialDuration: 2m", "configTrialDuration: 24h").Replace(inPool)
	api.Run("rollout", "plan", "-f", fakeapi.File(t, slow), "--nodes", "40").WantOutput(t, "The rollout is not complete within 30d; increase strategy.maxUnavailable to make it faster.\n")
}

func TestPlanSimulatesFailures(t *testing.T) {
	api := newAPI(t)
	file := fakeapi.File(t, inPool+"  failurePolicy: {maxFailures: 2%}\n")
	args := []string{"rollout", "plan", "-f", file, "--nodes", "500", "--zones", "3", "--simulate", "--fail-rate", "20%", "--seed", "7"}
	s := fakeapi.Decoded[PlanReport](t, api.Run(append(args, "-o", "json")...)).Simulation
	assert.Must(t, s != nil && s.Phase == v1alpha1.RolloutHalted && s.StoppedAfter != nil && s.FailedAtStop >= 10 &&
		s.Touched >= s.FailedInTheEnd && s.Touched <= 101 && s.Members == 500 && len(s.Samples) >= 4, "simulated: %+v", s)

	got := api.Run(args...)
	got.WantOutput(t, "(seed 7)\n", "Result Halted, after ", "Updated ", "Reached ",
		"Stopped after "+describe.Span(time.Duration(*s.StoppedAfter)*time.Second)+"\n", "Failed at the stop ", "Failed at the end ")
	again := api.Run(args...)
	assert.That(t, again.Out == got.Out, "the same seed gives something else: %s", again.Out)
	assert.That(t, !strings.Contains(got.Out, "\x1b"), "colors are written to what is no terminal")
	assert.That(t, api.Run(append(args, "--seed", "8")...).Out != got.Out, "another seed gives the same")
	named := strings.Replace(inPool, "kubelet: {apiVersion", "configMapRef: {namespace: x, name: y}\n    # {", 1)
	api.Run("rollout", "plan", "-f", fakeapi.File(t, strings.Replace(named, "topologyKey: topology.kubernetes.io/zone\n    maxDomainsInFlight: 1", "", 1)), "--nodes", "5").WantOutput(t, "A trial takes 10m.\n")
	api.Run("rollout", "plan", "-f", file, "--nodes", "50", "--simulate", "--silent-rate", "100%").WantOutput(t, "100% have a silent agent", "Updated 0 of 50 (0.0%)\n")
	api.Run("rollout", "plan", "-f", file, "--nodes", "50", "--simulate", "--not-ready-rate", "100%").WantOutput(t, "Result Halted", "Reached 1 of 50 (2.0%): the blast radius\n", "Failed at the stop 1 of 50 (2.0%)\n")
	api.Run("rollout", "plan", "-f", file, "--nodes", "50", "--simulate").WantOutput(t, "Result Complete", "Reached 50 of 50 (100.0%)\n", "Failed at the end 0 of 50 (0.0%)\n")
}

func TestPlanIncludesDrains(t *testing.T) {
	api := newAPI(t)
	drains := "  strategy: {maxUnavailable: 2, steps: [{nodes: 100%}], drain: WhenBlocked}\n"
	always := strings.Replace(drains, "WhenBlocked", "Always", 1)
	manifest := "apiVersion: evenkeel.dev/v1alpha1\nkind: NodeConfigRollout\nmetadata: {name: drained}\nspec:\n  allNodes: true\n" +
		"  template: {kubelet: {apiVersion: evenkeel.dev/v1alpha1, kind: KubeletConfiguration}}\n"
	plan := func(strategy string, args ...string) fakeapi.Result {
		t.Helper()
		return api.Run(append([]string{"rollout", "plan", "-f", fakeapi.File(t, manifest+strategy), "--nodes", "4", "--simulate"}, args...)...)
	}
	plan(always).WantOutput(t, "If every node is healthy, it ends after about 24m10s: Complete.", "Nodes are drained; a drain is assumed to take 2m (--drain-duration).\n")
	plan(strings.Replace(always, "Always", "Always, drainOptions: {timeoutSeconds: 60}", 1)).WantOutput(t, "Complete.", "a drain is assumed to take 30s")
	plan(always, "--drain-duration", "5m").WantOutput(t, "it ends after about 30m10s: Complete.", "a drain is assumed to take 5m")
	plan(drains, "--blocked-rate", "100%").WantOutput(t, "Result Complete", "Updated 4 of 4 (100.0%)\n")
	plan(drains, "--blocked-rate", "100%", "--stuck-drain-rate", "100%").WantOutput(t, "100% are blocked by their pods, 100% have drains that never end (seed 1)",
		"Result Stuck", "2 draining, 2 blocked", "Updated 0 of 4 (0.0%)\n")
	plan(always, "--drain-duration", "-1m").WantError(t, "--drain-duration -1m0s is negative")
	v := fakeapi.Decoded[PlanReport](t, plan(always, "-o", "json"))
	assert.That(t, v.DrainSeconds == 120 && v.Simulation != nil && v.Simulation.Updated == 4,
		"the plan is %+v, simulated %+v", v, v.Simulation)
}

func TestPlanOfAnExistingRolloutStartsAtItsState(t *testing.T) {
	api := newAPI(t)
	first, second := api.AddRevision("stored", 1, "maxPods: 110\n"), api.AddRevision("stored", 2, "maxPods: 120\n")
	api.AddAgent("stored-a", "stored", fakeapi.ByRollout("stored", 2, second, first), fakeapi.Proved(second))
	api.AddAgent("stored-b", "stored", fakeapi.ByPerson(first), nil)
	taken := api.AddNode("stored-c", "stored", "z1")
	taken.Labels["taken"] = "yes"
	api.Write(taken)
	api.AddNodeConfig("stored-c", nil, nil)
	api.AddNode("stored-d", "stored", "z1") // it has no agent
	api.AddAgent("stored-e", "stored", nil, nil)
	api.AddAgent("stored-f", "stored", nil, nil)
	// The nodes are older than the rollout: they do not join it.
	api.AddRollout("stored", "stored", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow(second.Namespace, second.Name)
		all := intstr.FromString("100%")
		r.Spec.Strategy = v1alpha1.RolloutStrategy{MaxUnavailable: &all, Steps: []v1alpha1.RolloutStep{{Nodes: &all}}}
		r.Status.CurrentRevision = &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: fakeapi.RefTo(first)}
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: fakeapi.RefTo(second)}
		r.Status.Attempt = 1
	})
	api.AddRollout("first-come", "stored", fakeapi.Pods(5), func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Priority = 9
		r.Spec.NodeSelector.MatchLabels["taken"] = "yes"
	})
	api.Run("rollout", "plan", "stored").WantOutput(t,
		"Rollout stored, revision 2: 6 nodes selected, 1 updated, 2 to come, 3 excluded\n",
		"1 100% 0s 2 z1:2 stored-", "If every node is healthy, it ends after about 10m5s: Complete. A trial takes 10m.\n",
		"Excluded:\n", "1 Manual (stored-b): a person set its configuration", "1 Conflicted (stored-c): rollout first-come has the node\n", "1 Stale (stored-d): no NodeConfig")

	file := fakeapi.File(t, strings.ReplaceAll(inPool, "planned", "stored"))
	api.Run("rollout", "plan", "-f", file, "--trial-duration", "1h").WantOutput(t, "Rollout stored, revision 3 (new): 6 nodes selected, 0 updated, 3 to come, 3 excluded\n", "A trial takes 2m.\n")
	api.Run("rollout", "plan", "-f", fakeapi.File(t, strings.ReplaceAll(inPool, "planned", "stored")+"  paused: true\n")).WantOutput(t, "No node is assigned the revision: Paused: spec.paused")

	fresh := strings.NewReplacer("name: planned", "name: fresh", "planned", "stored").Replace(inPool)
	api.Run("rollout", "plan", "-f", fakeapi.File(t, fresh)).WantOutput(t, "Rollout fresh, revision 1 (new): 6 nodes selected", " Conflicted (stored-")
}

func TestARolloutWithoutItsTemplateShowsItsNodes(t *testing.T) {
	api := newAPI(t)
	target := api.AddRevision("lost", 2, "maxPods: 120\n")
	api.AddAgent("lost-a", "lost", fakeapi.ByRollout("lost", 2, target, nil), fakeapi.Proved(target))
	api.AddAgent("lost-b", "lost", nil, nil)
	api.AddRollout("lost", "lost", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow(target.Namespace, "nowhere")
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: fakeapi.RefTo(target)}
		r.Status.Attempt = 1
	})
	api.Run("rollout", "plan", "lost").Want(t, command.ExitError, []string{
		"Rollout lost, revision 2: 2 nodes selected, 1 updated, 1 to come, 0 excluded",
		"No node is assigned the revision: Invalid: spec.template.configMapRef: ConfigMap ",
	}, "rollout lost is invalid: spec.template.configMapRef: ConfigMap ")
}

func TestPlanOfAnOldConfigurationHasTheNextNumber(t *testing.T) {
	api := newAPI(t)
	first, second := api.AddRevision("returning", 1, "maxPods: 110\n"), api.AddRevision("returning", 2, "maxPods: 120\n")
	api.AddRollout("returning", "returning", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow(first.Namespace, first.Name)
		r.Status.CurrentRevision = &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: fakeapi.RefTo(second)}
		r.Status.UpdateRevision = r.Status.CurrentRevision
	})
	api.Run("rollout", "plan", "returning").WantOutput(t, "Rollout returning, revision 3: 0 nodes selected", "No node is assigned the revision: NoNodes: ")
}

func TestPlanErrors(t *testing.T) {
	api := newAPI(t)
	file := fakeapi.File(t, inPool)
	edit := func(old, new string) string { return fakeapi.File(t, strings.Replace(inPool, old, new, 1)) }
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"x -f " + file, []string{"specify either the name of a rollout, or -f"}},
		{"-f " + fakeapi.File(t, ""), []string{"kubelet.yaml: empty"}},
		{"-f " + fakeapi.File(t, "- a"), []string{"not a NodeConfigRollout"}},
		{"-f " + fakeapi.File(t, "kind: Pod\napiVersion: v1"), []string{"but v1 Pod"}},
		{"-f " + edit("spec:", "spec:\n  nonsense: 1"), []string{"unknown field", "nonsense"}},
		{"-f " + edit("name: planned", "labels: {}"), []string{"metadata.name is missing"}},
		{"-f " + edit("nodeSelector: {matchLabels: {pool: planned}}", "priority: 1"), []string{"rollout planned is invalid: spec.nodeSelector is empty"}},
		{"-f " + edit("20%", "200%"), []string{"spec.strategy.maxUnavailable", "200%"}},
		{"-f " + edit("20%", "200%") + " --nodes 5", []string{"spec.strategy.maxUnavailable", "200%"}},
		{"-f " + edit("resources: {maxPods: 120}", "nonsense: {}") + " --nodes 5", []string{"rollout planned is invalid: spec.template.kubelet", "nonsense"}},
		{"-f " + edit("kubelet: {apiVersion", "configMapRef: {namespace: evenkeel-system, name: nowhere}\n    #"), []string{"rollout planned is invalid: spec.template.configMapRef: ConfigMap evenkeel-system/nowhere does not exist"}},
		{"-f " + edit("steps: [{nodes: 1}", "steps: [{nodes: 3}, {nodes: 10%}") + " --nodes 20", []string{"kubelet.yaml: spec.strategy.steps: the step of 10% (2 of 20 nodes) follows the step of 3 nodes, but has fewer nodes: "}},
		{"planned --nodes 5", []string{"--nodes needs -f"}},
		{"-f " + file + " --nodes 0", []string{"--nodes 0: use 1 to 100000"}},
		{"-f " + file + " --zones 3", []string{"--zones needs --nodes"}},
		{"-f " + file + " --nodes 2 --zones 3", []string{"--zones 3"}},
		{"-f " + file + " --simulate --fail-rate 5", []string{`--fail-rate "5": use a percentage`}},
		{"-f " + file + " --simulate --silent-rate 101%", []string{`--silent-rate "101%"`}},
		{"-f " + file + " --simulate --fail-rate 60% --silent-rate 60%", []string{"is 120%"}},
		{"-f " + file + " --trial-duration -1m", []string{"is negative"}},
		{"-f " + file + " -o wide", []string{"json"}},
	} {
		api.Run(append([]string{"rollout", "plan"}, strings.Fields(tt.args)...)...).WantError(t, tt.want...)
	}

	for kind, want := range map[string]string{"NodeConfigRollout": "list rollouts", "ConfigMap": "revisions of rollout", "Node": "list nodes"} {
		api.Forbid("list", kind)
		api.Run("rollout", "plan", "-f", file).WantError(t, want, "forbidden")
	}
}

func TestPlanOfAManifestAcceptsStepsThatAreStored(t *testing.T) {
	api := newAPI(t)
	api.AddAgent("shrunk-a", "shrunk", nil, nil)
	api.AddAgent("shrunk-b", "shrunk", nil, nil)
	manifest := strings.NewReplacer("planned", "shrunk", "steps: [{nodes: 1}", "steps: [{nodes: 2}, {nodes: 10%}").Replace(inPool)
	file := fakeapi.File(t, manifest)
	api.Run("rollout", "plan", "-f", file).WantError(t, "spec.strategy.steps: the step of 10% (1 of 2 nodes) follows the step of 2 nodes")
	r := assert.Value(ParseManifest([]byte(manifest)))(t)
	fakeapi.Add(api, r)
	api.Run("rollout", "plan", "-f", file).WantOutput(t, "Rollout shrunk, revision 1 (new): 2 nodes selected")
}

func TestPlanUsesTheDurationInSpecTrial(t *testing.T) {
	api := newAPI(t)
	file := fakeapi.File(t, strings.NewReplacer(", trial: {configTrialDuration: 2m}", "", "  strategy:", "  trial: {configTrialDuration: 7m}\n  strategy:").Replace(inPool))
	api.Run("rollout", "plan", "-f", file, "--nodes", "20").WantOutput(t, "A trial takes 7m.\n")
	both := fakeapi.File(t, strings.Replace(inPool, "  strategy:", "  trial: {configTrialDuration: 7m}\n  strategy:", 1))
	api.Run("rollout", "plan", "-f", both, "--nodes", "20").Want(t, command.ExitError, nil,
		"rollout planned is invalid: spec.trial and the payload (trial.configTrialDuration) both have trial settings: remove one of them")
}
