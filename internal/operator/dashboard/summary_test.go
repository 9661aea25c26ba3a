// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// inPhase returns a rollout in a phase that selects no node.
func inPhase(name string, phase v1alpha1.RolloutPhase, failed int32) *v1alpha1.NodeConfigRollout {
	r := waiting()
	r.Name, r.Spec.AllNodes, r.Spec.NodeSelector = name, false, v1alpha1.Selector{MatchLabels: map[string]string{"pool": name}}
	r.Status.Phase, r.Status.Nodes = phase, v1alpha1.RolloutCounts{Failed: failed}
	return r
}

// forbidNodes makes a cache that of a user without the right to list Nodes.
func forbidNodes(w *cache) {
	w.nodes, w.listed[kindNodes] = map[string]*corev1.Node{}, false
	w.record(kindNodes, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no")))
}

func TestTheSummaryBeginsWithWhatNeedsAPerson(t *testing.T) {
	blocked := configOf("blocked", metav1.ConditionFalse, v1alpha1.ReasonWouldEvictPods)
	objects := []client.Object{
		inPhase("a-complete", v1alpha1.RolloutComplete, 0), inPhase("b-paused", v1alpha1.RolloutPaused, 0), inPhase("c-going", v1alpha1.RolloutProgressing, 0),
		inPhase("d-failing", v1alpha1.RolloutProgressing, 2), inPhase("e-waiting", v1alpha1.RolloutAwaitingApproval, 0), inPhase("f-halted", v1alpha1.RolloutHalted, 1),
		inPhase("g-halted", v1alpha1.RolloutHalted, 5), inPhase("h-stuck", v1alpha1.RolloutStuck, 0), inPhase("i-waiting", v1alpha1.RolloutAwaitingApproval, 0),
		nodeOf("down", "", false), configOf("down", metav1.ConditionTrue, "AllChecksPassed"), nodeOf("bare", "", true), nodeOf("blocked", "", true), blocked,
	}
	for i := range 9 {
		name := fmt.Sprint("failed-", i)
		objects = append(objects, nodeOf(name, "", true), configOf(name, metav1.ConditionFalse, v1alpha1.ReasonCrashLooped))
	}

	w := over(t, objects...)
	forbidNodes(w) // so that the numbers of rollouts are those of their statuses
	got := w.snapshot(t.Context(), time.Now())
	const unseen = "Zones, positions in rollouts, and nodes without an agent are not shown: the role evenkeel-operator allows to list Nodes."
	assert.That(t, got.Rights.Words == unseen && !got.Rights.MayListNodes, "the rights are %+v", got.Rights)
	var order []string
	for _, r := range got.Rollouts {
		order = append(order, r.Name)
	}
	want := []string{"g-halted", "f-halted", "h-stuck", "e-waiting", "i-waiting", "b-paused", "d-failing", "c-going", "a-complete"}
	assert.That(t, slices.Equal(order, want), "the rollouts are %q, want %q", order, want)

	var lines []string
	for _, l := range got.Summary {
		lines = append(lines, fmt.Sprintf("%d %s %s %s", l.Count, l.Words, l.Level, l.Filter))
	}

	want = []string{
		"1 no controller leads: namespace evenkeel-system has no Lease evenkeel-controller problem ",
		"2 2 rollouts halted problem rollouts/g-halted", "1 1 rollout stuck problem rollouts/h-stuck", "9 9 nodes failed problem ?health=Failed",
		"2 2 rollouts waiting for approval notice rollouts/e-waiting", "1 1 rollout paused notice rollouts/b-paused",
		"2 2 rollouts in progress ok rollouts/d-failing", "1 1 rollout complete ok rollouts/a-complete", "2 2 nodes healthy ok ?health=Healthy",
	}
	assert.That(t, slices.Equal(lines, want), "the summary is\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
}

// The clocks of the controller and of this machine can differ.
func TestAControllerWithAnotherClockLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease}}
		behind := func() *metav1.MicroTime { return new(metav1.NewMicroTime(time.Now().Add(-time.Hour))) }
		lease.Spec.RenewTime, lease.Spec.HolderIdentity = behind(), new("pod-1")
		s, _ := served(t, true, lease)
		w := s.clusters[0].cache
		known(w, inPhase("workers", v1alpha1.RolloutComplete, 0))
		silent := func() bool { return w.snapshot(t.Context(), time.Now()).Summary.Level() == describe.LevelProblem }
		assert.That(t, silent(), "a Lease that looks old")
		for range 3 {
			time.Sleep(2 * time.Second)
			lease.Spec.RenewTime = behind()
			assert.NoError(t, w.api.Update(t.Context(), lease))
			time.Sleep(cacheDuration + time.Second)
			assert.That(t, !silent(), "a Lease that is renewed")
		}

		for range 5 {
			time.Sleep(cacheDuration + time.Second)
			silent()
		}

		assert.That(t, silent(), "a Lease that is not renewed any more")
		w.record(kindAPI, &url.Error{Err: syscall.ECONNREFUSED})
		words := w.snapshot(t.Context(), time.Now()).Summary.Words(describe.LevelProblem)
		assert.That(t, slices.Equal(words, []string{"the API server does not answer"}),
			"whether somebody leads is not known then: %q", words)
	})
}

func TestAUserWithFewerRightsSeesTheSameHealthsAndNoPositions(t *testing.T) {
	s, _ := served(t, false)
	w := s.clusters[0].cache
	trial := configOf("trial", metav1.ConditionTrue, "AllChecksPassed")
	trial.Status.Trial, trial.Status.ComponentVersion = &v1alpha1.Trial{}, "v1.36.3"
	known(w, waiting(), nodeOf("fine", "z", true), configOf("fine", metav1.ConditionTrue, "AllChecksPassed"), nodeOf("trial", "z", true), trial,
		nodeOf("down", "z", false), configOf("down", metav1.ConditionTrue, "AllChecksPassed"), nodeOf("failed", "z", false), configOf("failed", metav1.ConditionFalse, "CrashLooped"), nodeOf("blocked", "z", true), configOf("blocked", metav1.ConditionFalse, "NeedsDrain"))
	assert.NoError(t, w.checkRights(t.Context()))
	all := w.snapshot(t.Context(), time.Now())
	forbidNodes(w)
	fewer := w.snapshot(t.Context(), time.Now())
	assert.That(t, fewer.Ready && len(fewer.Notes)+len(fewer.Trouble) == 0,
		"it waits for what is refused, or tells it again: %q, %+v", fewer.Notes, fewer.Trouble)
	assert.Must(t, len(all.Cells) == 5 && len(fewer.Cells) == 5, "%d and %d nodes", len(all.Cells), len(fewer.Cells))
	for name, c := range all.Cells {
		want := cell{Name: name, Kubelet: c.Kubelet, Standing: describe.Standing{Health: c.Health, Cause: c.Cause}}
		if name == "down" { // whether it is Ready is not known
			want.Health, want.Cause = describe.HealthHealthy, ""
		}

		assert.Equal(t, fewer.Cells[name], want, name)
		assert.That(t, c.Position != "" && c.Rollout == "workers" && fewer.Cells[name].Position == "", "to an administrator %s is %+v", name, c)
	}

	assert.Equal(t, fewer.Cells["trial"].Kubelet, "v1.36.3", "the kubelet")
	want := "Read only, and without zones, positions in rollouts, and nodes without an agent: the role evenkeel-operator allows to change rollouts and to list Nodes."
	assert.Equal(t, fewer.Rights, (rights{Words: want}), "the rights")
	assert.That(t, all.Rights.Words == "Read only: the role evenkeel-operator allows to change rollouts." && all.Rights.MayListNodes,
		"with Nodes, the rights are %+v", all.Rights)
}

func TestTheNumbersOfARolloutAreThoseOfTheMap(t *testing.T) {
	r := waiting() // its status says 1 updated, 9 pending and 2 failed
	w := over(t, r, nodeOf("a", "", true), configOf("a", metav1.ConditionTrue, "AllChecksPassed"), nodeOf("b", "", true), configOf("b", metav1.ConditionTrue, "AllChecksPassed"))
	v := w.snapshot(t.Context(), time.Now()).Rollouts[0]
	assert.Equal(t, fmt.Sprintf("%v %s %d %d %d", v.Counts, v.Updated, v.Failures.N, len(v.Failures.Nodes), v.Budget.Used),
		"[{Pending 2}] 0/2 0 0 1", "the numbers")
	forbidNodes(w)
	v = w.snapshot(t.Context(), time.Now()).Rollouts[0]
	assert.Equal(t, fmt.Sprintf("%v %d %d", v.Counts, v.Failures.N, len(v.Failures.Nodes)),
		"[{Updated 1} {Pending 9} {Failed 2}] 2 1", "without Nodes, the numbers")
}

func TestEachRolloutHasOnePrimaryActionWhichIsNeverAnAbort(t *testing.T) {
	halt := func(reason string) func(*v1alpha1.NodeConfigRollout) {
		return func(r *v1alpha1.NodeConfigRollout) {
			r.Status.Phase, r.Status.Halt = v1alpha1.RolloutHalted, &v1alpha1.RolloutHalt{Reason: reason}
		}
	}
	before := func(r *v1alpha1.NodeConfigRollout) { r.Status.CurrentRevision = &v1alpha1.RolloutRevision{Number: 2} }
	phase := func(p v1alpha1.RolloutPhase) func(*v1alpha1.NodeConfigRollout) {
		return func(r *v1alpha1.NodeConfigRollout) { r.Status.Phase = p }
	}
	type edits []func(*v1alpha1.NodeConfigRollout)
	for _, tt := range []struct {
		name string
		make edits
		want string
	}{
		{"awaiting approval", nil, "approve"},
		{"halted, without an earlier revision", edits{halt(v1alpha1.HaltTooManyFailures)}, "retry"},
		{"halted, after one that succeeded", edits{halt(v1alpha1.HaltTooManyFailures), before}, "undo"},
		{"halted by an outage", edits{halt(v1alpha1.HaltInconclusive), before}, "retry"},
		{"aborted", edits{halt(v1alpha1.HaltAborted), before}, "undo"},
		{"aborted, without an earlier revision", edits{halt(v1alpha1.HaltAborted)}, ""},
		{"rolled back", edits{halt(v1alpha1.HaltTooManyFailures), before, phase(v1alpha1.RolloutRolledBack)}, "undo"},
		{"rolling back", edits{halt(v1alpha1.HaltTooManyFailures), before, phase(v1alpha1.RolloutRollingBack)}, ""},
		{"stuck with failed nodes", edits{before, phase(v1alpha1.RolloutStuck)}, "retry"},
		{"stuck without failed nodes", edits{phase(v1alpha1.RolloutStuck), func(r *v1alpha1.NodeConfigRollout) { r.Status.Nodes.Failed = 0 }}, ""},
		{"paused", edits{phase(v1alpha1.RolloutPaused), func(r *v1alpha1.NodeConfigRollout) { r.Spec.Paused = true }}, "resume"},
		{"in progress", edits{phase(v1alpha1.RolloutProgressing)}, ""},
		{"complete with failed nodes", edits{phase(v1alpha1.RolloutComplete)}, "retry"},
		{"not seen by the controller", edits{func(r *v1alpha1.NodeConfigRollout) { r.Generation++ }}, ""},
		{"retried already", edits{halt(v1alpha1.HaltTooManyFailures), func(r *v1alpha1.NodeConfigRollout) {
			r.Spec.Retry = &v1alpha1.RolloutRetry{Revision: 3, Attempt: 2}
		}}, ""},
	} {
		r := waiting()
		for _, edit := range tt.make {
			edit(r)
		}

		assert.Equal(t, primaryOf(r), tt.want, tt.name)
	}
}

func TestEachClusterIsServedBelowItsNumber(t *testing.T) {
	s, log := served(t, true, waiting())
	other, _ := served(t, true, inPhase("others", v1alpha1.RolloutComplete, 0))
	second := s.clusterOf(Cluster{Config: other.clusters[0].Config, Context: "it's/there", Named: true}, other.clusters[0].api)
	s.clusters = append(s.clusters, second)
	for _, words := range []string{
		`"clusters":[{"id":0,"context":"here","server":"https://api"},{"id":1,"context":"it's/there","server":"https://api"}]`, `"health":["","Failed",`,
	} {
		answers(t, s, asked(http.MethodGet, "/api/about", ""), 200, words)
	}

	s.clusters[0].feed.update(snapshot{Cells: map[string]cell{"a": {Name: "a", Standing: describe.Standing{Health: describe.HealthFailed}}}, messageRest: messageRest{Ready: true,
		Summary: describe.Summary{{Level: describe.LevelProblem, Reason: "NodesFailed", Count: 1, Words: "1 node failed", Filter: "?health=Failed"}}}})
	s.clusters[1].cache.record(kindAPI, &url.Error{Err: syscall.ECONNREFUSED})
	s.clusters[1].feed.update(s.clusters[1].cache.snapshot(t.Context(), time.Now()))
	for _, words := range []string{
		`[{"id":0,"context":"here","ready":true,"summary":[{"level":"problem","reason":"NodesFailed","count":1,"words":"1 node failed",`,
		`{"id":1,"context":"it's/there","ready":false,"summary":[{"level":"problem","reason":"APIServerAway","count":1,"words":"the API server does not answer","filter":""}]}`,
	} {
		answers(t, s, asked(http.MethodGet, "/api/summaries", ""), 200, words)
	}

	for path, want := range map[string]string{
		"/api/clusters/0/rollouts/workers": `200 "name":"workers"`, "/api/clusters/1/rollouts/others": `200 "name":"others"`,
		"/api/clusters/1/rollouts/workers":  `404 rollout \"workers\" does not exist; existing rollouts: others`,
		"/api/clusters/2/rollouts/workers":  `404 there is no cluster \"2\"`,
		"/api/clusters/-1/rollouts/workers": `404 there is no cluster`, "/api/clusters/00/rollouts/workers": `404 there is no cluster`, "/api/clusters/x/feed": `404 there is no cluster`,
	} {
		code, words, _ := strings.Cut(want, " ")
		answers(t, s, asked(http.MethodGet, path, ""), assert.Value(strconv.Atoi(code))(t), words)
	}

	answers(t, s, asked(http.MethodPost, "/api/clusters/1/rollouts/others/pause", "{}"), 200, "")
	assert.That(t, strings.Contains(log.String(), "context it's/there: rollout others paused"), "the log is %q", log)
	full := named(t, second.offered(waiting(), ""), "approve-full")
	assert.Equal(t, full.Command, `kubectl evenkeel rollout approve workers --full --context 'it'\''s/there'`, "the command")
}

// unlisted is an API server that lists nothing.
type unlisted struct{ client.WithWatch }

func (unlisted) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("no")
}

func TestARolloutWhosePlanIsNotKnownIsAProblem(t *testing.T) {
	w := over(t, inPhase("w", v1alpha1.RolloutComplete, 0))
	w.api = unlisted{w.api}
	got := w.snapshot(t.Context(), time.Now()).Summary.Words(describe.LevelProblem)
	assert.That(t, slices.Contains(got, "cannot read rollout w"), "the problems are %q", got)
}
