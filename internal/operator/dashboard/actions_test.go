// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// waiting is a rollout that waits at the pause after its first step.
func waiting() *v1alpha1.NodeConfigRollout {
	one, all := intstr.FromInt32(1), intstr.FromString("100%")
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers", Generation: 2}}
	r.Spec.AllNodes = true
	r.Spec.Template.Kubelet = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration"}`)}
	r.Spec.Strategy.Steps = []v1alpha1.RolloutStep{{Nodes: &one}, {Pause: &v1alpha1.RolloutPause{}}, {Nodes: &all}}
	r.Status = v1alpha1.NodeConfigRolloutStatus{
		ObservedGeneration: 2, Phase: v1alpha1.RolloutAwaitingApproval, Step: 1, Message: "revision 3: 1/3 steps are done",
		UpdateRevision: &v1alpha1.RolloutRevision{Number: 3, ConfigMapRef: v1alpha1.ConfigMapReference{Name: "workers-1234567890", UID: "u3"}},
		Nodes:          v1alpha1.RolloutCounts{Updated: 1, Pending: 9, Failed: 2},
		FailedNodes:    []v1alpha1.FailedNode{{Name: "node-1", Reason: "CrashLooped", Message: "exit status 1"}},
	}

	return r
}

// reasons are why actions are not offered, by verb; empty: it is.
func reasons(all []actionView) map[string]string {
	out := map[string]string{}
	for _, a := range all {
		out[a.Verb] = a.Not
	}

	return out
}

// named is the action with this verb.
func named(t *testing.T, all []actionView, verb string) actionView {
	t.Helper()
	i := slices.IndexFunc(all, func(a actionView) bool { return a.Verb == verb })
	assert.Must(t, i >= 0, "there is no action %s", verb)

	return all[i]
}

func TestOnlyWhatHasAnEffectIsOfferedAndTheOthersSayWhyNot(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*v1alpha1.NodeConfigRollout)
		mayNot string
		want   map[string]string // begins of the reasons; empty: offered
	}{
		{"at a pause", func(*v1alpha1.NodeConfigRollout) {}, "", map[string]string{
			"pause": "", "resume": "workers is not paused, but waits for approval", "approve": "", "approve-full": "", "abort": "", "abort-rollback": ""}},
		{"paused by a person", func(r *v1alpha1.NodeConfigRollout) { r.Spec.Paused = true }, "", map[string]string{
			"pause": "workers is paused already: nothing changes", "resume": ""}},
		{"between pauses", func(r *v1alpha1.NodeConfigRollout) { r.Status.Step = 2 }, "", map[string]string{
			"approve": "workers does not wait for approval: it is AwaitingApproval, at the step of 100%", "approve-full": ""}},
		{"halted", func(r *v1alpha1.NodeConfigRollout) {
			r.Status.Phase, r.Status.Halt = v1alpha1.RolloutHalted, &v1alpha1.RolloutHalt{Reason: "TooManyFailures"}
		}, "", map[string]string{"approve": "workers is halted at revision 3 (TooManyFailures)", "abort": "workers is halted at revision 3 already", "abort-rollback": ""}},
		{"not seen by the controller", func(r *v1alpha1.NodeConfigRollout) { r.Generation = 3 }, "", map[string]string{
			"pause": "", "approve": "the controller has not observed this change yet", "abort": "the controller has not observed this change yet"}},
		{"without a revision", func(r *v1alpha1.NodeConfigRollout) { r.Status.UpdateRevision = nil }, "", map[string]string{
			"pause": "", "approve": "workers has no revision", "abort": "workers has no revision"}},
		{"without the right", func(*v1alpha1.NodeConfigRollout) {}, "you have no right", map[string]string{
			"pause": "you have no right", "approve": "you have no right", "abort": "you have no right", "abort-rollback": "you have no right"}},
	} {
		r := waiting()
		tt.change(r)
		got := reasons(new(cluster).offered(r, tt.mayNot))
		for verb, want := range tt.want {
			assert.That(t, strings.HasPrefix(got[verb], want) && (want != "" || got[verb] == ""),
				"%s: %s is not offered because %q, want %q", tt.name, verb, got[verb], want)
		}
	}
}

// The words do not wait for the fleet: who confirms has read them.
func TestARetryOfAStoppedRevisionSaysWhyAndShowsTheCommandThatWorks(t *testing.T) {
	for _, tt := range []struct{ reason, means, command string }{
		{"", "", "kubectl evenkeel rollout retry workers"},
		{v1alpha1.HaltInconclusive, "", "kubectl evenkeel rollout retry workers"},
		{v1alpha1.HaltTooManyFailures, " The revision was stopped: TooManyFailures: 1 node failed.", "kubectl evenkeel rollout retry workers --force"},
	} {
		r := waiting()
		if tt.reason != "" {
			r.Status.Halt = &v1alpha1.RolloutHalt{Reason: tt.reason, Message: "1 node failed"}
		}

		a := named(t, new(cluster).offered(r, ""), verbRetry)
		assert.Equal(t, a.Means, assert.Value(actionOf(verbRetry))(t).means+tt.means, tt.reason, "it means")
		assert.That(t, strings.HasPrefix(a.Command, "kubectl evenkeel") &&
			strings.HasSuffix(a.Command, strings.TrimPrefix(tt.command, "kubectl evenkeel")), "%s: %s", tt.reason, a.Command)
	}
}

func TestAContentThatFailedBeforeIsNotRolledOutWithoutAWord(t *testing.T) {
	r := waiting()
	r.Status.UpdateRevision.ConfigMapRef.SHA256 = "bad"
	r.Status.History = []v1alpha1.RolloutOutcome{{Revision: 2, SHA256: "bad", Outcome: v1alpha1.OutcomeHalted, Reason: v1alpha1.HaltTooManyFailures, Message: "w-7 CrashLooped"}}
	for _, paused := range []bool{false, true} {
		r.Spec.Paused = paused
		for _, a := range new(cluster).offered(r, "") {
			force := a.Verb == verbResume && paused || strings.HasPrefix(a.Verb, verbApprove) && !paused
			assert.Equal(t, strings.Contains(a.Command, " --force"), force, a.Verb, paused, a.Command)
			assert.Equal(t, strings.HasSuffix(a.Means, " This configuration failed before: revision 2 was stopped (w-7 CrashLooped)."), force, a.Verb, paused, a.Means)
		}
	}
}

func TestAnActionWritesWhatTheCommandLineWrites(t *testing.T) {
	const reason = "a storm"
	r, cm := after(t)
	instead := fakeapi.RefTo(fakeapi.Revision(t, r.Name, 3, r.Spec.Template))
	for verb, want := range map[string]v1alpha1.NodeConfigRolloutSpec{
		"pause":          {Paused: true, PausedReason: reason},
		"approve":        {Approval: &v1alpha1.RolloutApproval{Revision: 3, Step: 1, Reason: reason}},
		"approve-full":   {Approval: &v1alpha1.RolloutApproval{Revision: 3, Step: 2, Reason: reason}},
		"retry":          {Retry: &v1alpha1.RolloutRetry{Revision: 3, Attempt: 2}},
		"abort":          {Abort: &v1alpha1.RolloutAbort{Revision: 3, Reason: reason}},
		"abort-rollback": {Abort: &v1alpha1.RolloutAbort{Revision: 3, Rollback: true, Reason: reason}},
		"undo":           {Pin: &v1alpha1.RolloutPin{SHA256: fakeapi.RefTo(cm).SHA256, Instead: instead.SHA256}},
	} {
		s, _ := served(t, true, r.DeepCopy(), cm.DeepCopy())
		because := func(reason string) *http.Request {
			return posted(verb, `{"revision":3,"step":1,"reason":"`+reason+`"}`)
		}
		answers(t, s, because(strings.Repeat("é", 257)), 400, "the reason has 257 characters, more than the limit of 256")
		answers(t, s, because(reason), 200, "rollout workers ")
		assert.NoDiff(t, cmp.Diff(want, written(t, s)), verb)
	}
}

// written returns what actions have written to the spec of the rollout workers.
func written(t *testing.T, s *Server) v1alpha1.NodeConfigRolloutSpec {
	t.Helper()
	var r v1alpha1.NodeConfigRollout
	assert.NoError(t, s.clusters[0].api.Get(t.Context(), client.ObjectKey{Name: "workers"}, &r))
	return v1alpha1.NodeConfigRolloutSpec{
		Paused: r.Spec.Paused, PausedReason: r.Spec.PausedReason, Approval: r.Spec.Approval, Retry: r.Spec.Retry, Abort: r.Spec.Abort, Pin: r.Spec.Pin,
	}
}

// after returns the rollout of waiting with a revision 2 that succeeded, and
// the ConfigMap of that revision.
func after(t *testing.T) (*v1alpha1.NodeConfigRollout, *corev1.ConfigMap) {
	t.Helper()
	r := waiting()
	cm := fakeapi.Revision(t, r.Name, 2, v1alpha1.RolloutTemplate{Kubelet: fakeapi.Pods(100)})
	r.Status.CurrentRevision = &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: fakeapi.RefTo(cm)}

	return r, cm
}

func TestAnEmergencyDoesNotWaitForAStepThatHasPassed(t *testing.T) {
	for verb, seen := range map[string]string{"pause": `{"revision":2}`, "abort": `{"revision":3,"step":0}`, "abort-rollback": `{"revision":3,"step":0}`} {
		s, _ := served(t, true, waiting())
		answers(t, s, posted(verb, seen), 200, "")
	}
}

func TestADetailSaysWhyNothingMayBeDone(t *testing.T) {
	s, _ := served(t, false, waiting())
	d := assert.Value(s.clusters[0].detail(t.Context(), "workers", metav1.Now().Time))(t)
	assert.Equal(t, d.MayNot,
		"you are not allowed to patch nodeconfigrollouts.evenkeel.dev: ask an administrator for the role evenkeel-operator")
	assert.Equal(t, reasons(d.Actions)["abort"], d.MayNot, "abort is not offered because")
	assert.That(t, len(d.History) == 1 && d.History[0].Revision.Revision == 3 && d.History[0].Gone, "the history is %+v", d.History)
	assert.Equal(t, d.Diff, "", "without an earlier revision")
	assert.ErrorHas(t, assert.Err(s.clusters[0].detail(context.Background(), "others", metav1.Now().Time)),
		`rollout "others" does not exist`, "of another rollout")
}

func TestADetailHasTheCommandThatComparesItsRevisions(t *testing.T) {
	r, cm := after(t)
	s, _ := served(t, true, r, cm)
	d := assert.Value(s.clusters[0].detail(t.Context(), "workers", metav1.Now().Time))(t)
	assert.Equal(t, d.Diff, "kubectl evenkeel config diff rollout/workers@2 rollout/workers@3", "it is")
}

func TestARolloutIsSummedUp(t *testing.T) {
	r := waiting()
	v := viewOf(r, metav1.Now().Time)
	assert.That(t, v.Phase == "AwaitingApproval" && v.Tone == "waits" && v.Revision == 3, "it is %+v", v)
	assert.That(t, v.Failures.N == 2 && v.Failures.Most == "1" && v.Failures.Nodes[0].Name == "node-1", "its failures are %+v", v.Failures)
	var steps []string
	for _, s := range v.Steps {
		steps = append(steps, s.Words+" "+s.State)
	}

	assert.Equal(t, strings.Join(steps, ", "), "1 node done, pause now, 100% next", "the steps")
	r.Generation = 3
	v = viewOf(r, metav1.Now().Time)
	assert.That(t, v.Phase == "Unseen" && strings.Contains(v.Message, "has not observed this change yet"),
		"with a status that answers an older spec it is %+v", v)
	for phase, want := range map[v1alpha1.RolloutPhase]string{
		v1alpha1.RolloutComplete: "good", v1alpha1.RolloutProgressing: "busy", v1alpha1.RolloutHalted: "bad", v1alpha1.RolloutPaused: "waits", "": "waits",
	} {
		assert.Equal(t, toneOf(inPhase("a", phase, 0)), want, "the tone of", phase)
	}
}

func TestARolloutNamesTheTermsOfItsTrialsItsWindowsAndTheNextOne(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	r := &v1alpha1.NodeConfigRollout{Spec: v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}}}
	assert.Equal(t, viewOf(r, now).Window+ruleOf(r, "Trial"), "", "without windows and terms")
	r.Spec.Trial = &v1alpha1.TrialTerms{
		ConfigTrialDuration: &metav1.Duration{Duration: 30 * time.Minute}, CrashLoopThreshold: new(int32(0)), AllowPodLoss: true,
	}
	assert.Equal(t, ruleOf(r, "Trial"), "30m, 0 restarts, pods may be lost\n", "the terms")
	six := metav1.Duration{Duration: 6 * time.Hour}
	r.Spec.Strategy.Windows = []v1alpha1.MaintenanceWindow{
		{Schedule: "0 22 * * 1-5", Duration: six, TimeZone: "Europe/Berlin", Finish: v1alpha1.FinishWithin}, {Schedule: "0 8 * * 6", Duration: six},
	}
	r.Status.NextWindowTime = new(metav1.NewTime(now.Add(9 * time.Hour)))
	assert.Equal(t, ruleOf(r, "Window"), "0 22 * * 1-5 for 6h, Europe/Berlin, trials end within\n0 8 * * 6 for 6h, UTC\n", "the windows")
	assert.Equal(t, viewOf(r, now).Window, "2030-01-01T21:00:00Z, in 9h", "the next one")
	r.Spec.Strategy.Windows[1].Schedule = "\x1b[31m"
	got := rulesOf(r)[0].Text
	assert.That(t, strings.Contains(got, "spec.strategy.windows[1].schedule") && !strings.Contains(got, "\x1b"),
		"an invalid one gives %q", got)
}

// ruleOf returns the lines of a rollout's rules with this key.
func ruleOf(r *v1alpha1.NodeConfigRollout, key string) (text string) {
	for _, l := range rulesOf(r) {
		if l.Key == key {
			text += l.Text + "\n"
		}
	}

	return text
}

func TestConfirmationsSayWhatTheNodesDoAndWhatRestartsCost(t *testing.T) {
	r := waiting()
	revision := fakeapi.Revision(t, r.Name, 3, r.Spec.Template)
	r.Status.UpdateRevision.ConfigMapRef = fakeapi.RefTo(revision)
	s, _ := served(t, true, r, revision)
	var objects []client.Object
	for name, pods := range map[string]int64{"has-it": 5, "pending-a": 3, "pending-b": 4, "pending-c": 0} {
		node, nc := nodeOf(name, "z1", true), configOf(name, metav1.ConditionTrue, "AllChecksPassed")
		node.Status.NodeInfo.KubeletVersion = "v1.34.4"
		nc.Status.PodsUnreadyOnRestart = &pods
		if name == "has-it" {
			nc.Status.Active, nc.Status.LastKnownGood = fakeapi.Runs(revision), fakeapi.Proven(revision)
			nc.Spec.ConfigSource = fakeapi.ByRollout("workers", 3, revision, nil)
		}

		objects = append(objects, node, nc)
	}

	known(s.clusters[0].cache, append(objects, r)...)
	const effect = "/api/clusters/0/rollouts/workers/effect/"
	const begin = "a restart of the kubelet makes pods unready until their next probe: "
	for verb, want := range map[string][]string{
		"approve-full":   {"3 nodes go from the local configuration to revision 3, 1 node keeps revision 3", begin + "7 pods on 2 nodes (kubelet 1.34)"},
		"abort-rollback": {"1 node goes from revision 3 to the local configuration, 3 nodes keep the local configuration", begin + "5 pods on 1 node (kubelet 1.34)"},
		"abort": {"3 nodes keep the local configuration, 1 node keeps revision 3",
			"rolled back, 1 node goes from revision 3 to the local configuration, 3 nodes keep the local configuration"},
	} {
		code, body := answer(s, asked(http.MethodGet, effect+verb, ""))
		var got struct{ Lines []string }
		assert.NoError(t, json.Unmarshal([]byte(body), &got))
		assert.That(t, code == 200 && slices.Equal(got.Lines, want), "%s: %d %s, want %q", verb, code, body, want)
	}

	answers(t, s, asked(http.MethodGet, effect+"retry", ""), 200, `["3 nodes go from the local configuration`)
	answers(t, s, asked(http.MethodGet, effect+"undo", ""), 409, "has no revision that succeeded")
	for _, a := range s.clusters[0].offered(r, "") {
		assert.Equal(t, a.Moves, a.Verb != "pause", a.Verb, "moves nodes")
	}
}
