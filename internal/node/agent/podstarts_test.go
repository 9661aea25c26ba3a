// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// starting is a node on which a trial began with these pods.
type starting struct {
	pods  podStarts
	state source.NodeState
	trial *trial.Trial
	clock int
}

func beganWith(pods ...source.Pod) *starting {
	s := &starting{state: source.NodeState{Reachable: true, Complete: true, Pods: pods}}
	s.trial = &trial.Trial{Baseline: trial.Baseline{API: true, Failing: failing(pods)}}
	s.update()
	return s
}

// update notes attempts to start these pods, namespace/name, and returns which
// pods were refused and which were started.
func (s *starting) update(refused ...string) string {
	var log []component.PodRefusal
	for _, name := range refused {
		s.clock++
		namespace, pod, _ := strings.Cut(name, "/")
		log = append(log, component.PodRefusal{Namespace: namespace, Name: pod, Attempt: fmt.Sprint(s.clock), Seen: fmt.Sprint(s.clock), Words: fmt.Sprintf("words %d", s.clock)})
	}

	s.pods.update(log, s.state, true, s.trial)
	var words []string
	for _, p := range s.pods.refused {
		words = append(words, fmt.Sprintf("%s/%s refused (%s)", p.Namespace, p.Name, p.Words))
	}

	for _, p := range s.pods.started {
		words = append(words, fmt.Sprintf("%s/%s started", p.Namespace, p.Name))
	}

	return strings.Join(words, ", ")
}

// twice notes two attempts.
func (s *starting) twice(refused ...string) string {
	s.update(refused...)
	return s.update(refused...)
}

func pod(name, started string) source.Pod {
	namespace, short, _ := strings.Cut(name, "/")
	return source.Pod{UID: types.UID(name), Namespace: namespace, Name: short, Started: started, Waiting: started == ""}
}

func TestAPodCountsAsRefusedAfterTwoAttempts(t *testing.T) {
	s := beganWith(pod("shop/runs", "1"))
	s.state.Pods = append(s.state.Pods, pod("shop/new", ""))
	for i, want := range []string{"", "shop/new refused (words 1)", "shop/new refused (words 1)"} {
		assert.Equal(t, s.update("shop/new"), want, "attempt", i)
	}

	same := []component.PodRefusal{{Namespace: "shop", Name: "runs", Attempt: "same", Seen: "same", Words: "same"}}
	s.pods.update(same, s.state, true, s.trial)
	s.pods.update(same, s.state, true, s.trial)
	assert.Equal(t, s.update(), "shop/new refused (words 1)", "after the log was read twice")
	got := s.update("shop/runs")
	assert.That(t, strings.Contains(got, "shop/runs refused"), "a pod that ran and must be restarted: %q", got)
}

func TestPodsThatFailedBeforeTheTrialDoNotCount(t *testing.T) {
	before := pod("shop/failed", "")
	before.Owner = "job"
	s := beganWith(before, pod("shop/runs", "1"))
	after := pod("shop/replacement", "")
	after.Owner = "job"
	s.state.Pods = append(s.state.Pods, after)
	for range 3 {
		assert.Equal(t, s.update("shop/failed", "shop/replacement"), "", "refused")
	}

	s.trial = nil // nor after the trial
	assert.Equal(t, s.update("shop/failed", "shop/replacement"), "", "after the trial, refused")
}

// What an earlier kubelet created may keep its limits; so may a static pod whose
// mirror pod is new.
func TestPodsThatAnEarlierKubeletCreatedAreInherited(t *testing.T) {
	before, after, static := pod("a/before", ""), pod("b/after", ""), pod("c/static", "")
	static.Static = true
	s := &starting{state: source.NodeState{Reachable: true, Complete: true, Pods: []source.Pod{before}}}
	s.trial = &trial.Trial{Baseline: trial.Baseline{API: true, Failing: []string{}}}
	s.update()
	s.state.Pods = append(s.state.Pods, after, static)
	s.update()
	names := []string{"a/before", "b/after", "c/static"}
	s.twice(names...)
	assert.Equal(t, len(s.pods.refused), 3, "refused pods")
	for i, inherited := range []bool{true, false, true} {
		assert.Equal(t, s.pods.refused[i].Inherited, inherited, names[i])
	}
}

// A StatefulSet gives the next pod the same name.
func TestAPodIsNotRefusedForAnEarlierPodWithItsName(t *testing.T) {
	s := beganWith(pod("shop/db-0", "1"))
	s.twice("shop/db-0")
	s.state.Pods[0].UID = "another"
	assert.Equal(t, s.update(), "", "refused are")
}

// All start probes of a node have one owner, which says nothing about the next
// one: the earlier one may have shown another fault.
func TestAnEarlierStartProbeDoesNotAcquitTheNext(t *testing.T) {
	before, after := pod("evenkeel-system/probe-1", ""), pod("evenkeel-system/probe-2", "")
	before.Owner, after.Owner, before.StartProbe, after.StartProbe = "node-config", "node-config", true, true
	s := beganWith(before)
	s.state.Pods = append(s.state.Pods, after)
	assert.Equal(t, s.twice("evenkeel-system/probe-1", "evenkeel-system/probe-2"), "evenkeel-system/probe-2 refused (words 2)")
}

// A long trial on a node with many short pods must not remember all of them.
func TestPodsThatAreGoneAreForgotten(t *testing.T) {
	s := beganWith(pod("shop/runs", "1"))
	for i := range 100 {
		job := pod(fmt.Sprintf("shop/job-%d", i), "2")
		job.UID = types.UID(job.Name)
		s.state.Pods = append(s.state.Pods[:1], job)
		s.update()
	}

	assert.Equal(t, len(s.pods.base), 2, "pods that are remembered")
}

func TestWithoutNotesFromTheBeginOfTheTrialNoPodCounts(t *testing.T) {
	for name, change := range map[string]func(*trial.Baseline){
		"the API was away": func(b *trial.Baseline) { b.API = false },
		"an earlier agent": func(b *trial.Baseline) { b.Failing = nil },
	} {
		s := beganWith(pod("shop/runs", "1"))
		change(&s.trial.Baseline)
		assert.Equal(t, s.twice("shop/runs"), "", name)
	}

	var b trial.Baseline
	assert.NoError(t, json.Unmarshal(assert.Value(json.Marshal(trial.Baseline{Failing: failing(nil)}))(t), &b))
	assert.That(t, b.Failing != nil, "what an agent noted without failing pods is read as notes of an earlier agent")
}

func TestAPodThatStartsIsNoLongerRefused(t *testing.T) {
	s := beganWith(pod("shop/old", "1"))
	s.state.Pods = append(s.state.Pods, pod("shop/new", ""))
	s.twice("shop/new", "shop/old")
	s.state.Pods[1] = pod("shop/new", "2")
	assert.Equal(t, s.update(), "shop/old refused (words 2), shop/new started")
	s.state.Pods = s.state.Pods[:1]
	assert.Equal(t, s.update(), "shop/old refused (words 2), shop/new started", "after the pod that started was deleted")
	s.state.Reachable = false
	assert.Equal(t, s.update(), "shop/old refused (words 2), shop/new started", "without the API")
}

func TestAContainerThatTheOldKubeletStartedDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func() string { return time.Now().UTC().Format(time.RFC3339) }
		time.Sleep(time.Minute)
		before := at() // the old kubelet has not reported it
		time.Sleep(2 * time.Second)
		s := &starting{pods: podStarts{since: time.Now()}, trial: &trial.Trial{Baseline: trial.Baseline{API: true, Failing: []string{}}}}
		s.state = source.NodeState{Reachable: true, Complete: true, Pods: []source.Pod{pod("shop/old", ""), pod("shop/new", "")}}
		s.update()
		s.state.Pods[0] = pod("shop/old", before)
		assert.Equal(t, s.update(), "")
		s.state.Pods[1] = pod("shop/new", at())
		assert.Equal(t, s.update(), "shop/new started")
	})
}

func TestRefusalsThatNobodyWatchesAreReportedAsSuch(t *testing.T) {
	var p podStarts
	p.update(nil, source.NodeState{}, false, nil)
	assert.That(t, !p.unseen, "unseen without a refusal")
	for _, attempt := range []string{"1", "2"} {
		p.update([]component.PodRefusal{{Namespace: "shop", Name: "web", Attempt: attempt, Seen: attempt, Words: "refused"}}, source.NodeState{}, false, nil)
	}

	assert.That(t, p.unseen && len(p.refused) == 0, "unseen %t, refused %v", p.unseen, p.refused)
}

// A flood of failing pods must neither cost memory nor change the words that
// are reported.
func TestAFloodOfRefusedPodsIsBounded(t *testing.T) {
	s := beganWith()
	var names []string
	for i := range 500 {
		name := fmt.Sprintf("shop-%03d/flood", i)
		names = append(names, name)
		s.state.Pods = append(s.state.Pods, pod(name, ""))
	}

	first := s.twice(names...)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 20 {
		slices.Reverse(names)
		s.update(names...)
	}

	assert.Equal(t, len(s.pods.refused), maxRefused, "refused")
	assert.Equal(t, s.update(), first)
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	assert.That(t, grown <= 1<<20, "the heap has grown by %d bytes", grown)
}

// Nothing says for pods that did not count once whether the next attempt must
// be watched: otherwise the watch would go on and off.
func TestAPodThatWasJudgedIsNotUnseenAgain(t *testing.T) {
	before := pod("shop/failed", "")
	s := beganWith(before)
	s.twice("shop/failed")
	for i := range 3 {
		attempt := fmt.Sprintf("later %d", i)
		s.pods.update([]component.PodRefusal{{Namespace: "shop", Name: "failed", Attempt: attempt, Seen: attempt, Words: "refused"}}, source.NodeState{}, false, nil)
		assert.That(t, !s.pods.unseen, "attempt %d is unseen", i)
	}
}

// The kubelet reports a container that could not be started without a time, or
// shows the one before it.
func TestARefusedRestartIsNoStart(t *testing.T) {
	for _, started := range []string{"", "2026-11-28T09:00:00Z"} {
		s := beganWith(pod("shop/web", "2026-11-28T10:00:00Z"))
		s.state.Pods[0] = pod("shop/web", started)
		assert.Equal(t, s.twice("shop/web"), "shop/web refused (words 1)", "started", started)
	}
}

func TestRefusalsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refused = "shop/new refused (words 1)"
		for name, c := range map[string]struct {
			after time.Duration
			log   component.PodRefusal
			want  string
		}{
			"nothing new in the log":             {forgottenAfter, component.PodRefusal{Attempt: "2", Seen: "2", Words: "words 2"}, refused},
			"nothing new for long":               {forgottenAfter + 1, component.PodRefusal{Attempt: "2", Seen: "2", Words: "words 2"}, ""},
			"a back-off":                         {forgottenAfter + 1, component.PodRefusal{Attempt: "2", Seen: "3", Words: "words 2"}, refused},
			"only a back-off is left in the log": {forgottenAfter + 1, component.PodRefusal{Seen: "3"}, refused},
			"another attempt":                    {forgottenAfter + 1, component.PodRefusal{Attempt: "3", Seen: "3", Words: "words 3"}, refused},
			"another error":                      {time.Second, component.PodRefusal{Attempt: "3", Seen: "3"}, ""},
			"a runtime that hangs":               {time.Second, component.PodRefusal{Attempt: "3", Seen: "3", Words: "timeout", Timeout: true}, ""},
		} {
			s := beganWith()
			s.state.Pods = append(s.state.Pods, pod("shop/new", ""))
			s.twice("shop/new")
			time.Sleep(c.after)
			c.log.Namespace, c.log.Name = "shop", "new"
			s.pods.update([]component.PodRefusal{c.log}, s.state, true, s.trial)
			assert.Equal(t, s.update(), c.want, name)
		}
	})
}

func TestAPodThatStartedMustBeRefusedTwiceAgain(t *testing.T) {
	s := beganWith(pod("shop/web", "1"))
	s.twice("shop/web")
	s.state.Pods[0] = pod("shop/web", "2")
	for i, want := range []string{"shop/web started", "shop/web started", "shop/web refused (words 3), shop/web started"} {
		attempts := []string{"shop/web"}
		assert.Equal(t, s.update(attempts[:min(i, 1)]...), want, i)
	}
}

func TestTimeoutsCountWithAShorterTimeoutOnly(t *testing.T) {
	of := func(timeout any) component.Effective { return component.Effective{"runtimeRequestTimeout": timeout} }
	for _, c := range []struct {
		lastKnownGood, local, after component.Effective
		want                        bool
	}{
		{of("2m0s"), of("1ms"), of("60ms"), true},
		{of("2m0s"), of("2m0s"), of("2m0s"), false},
		{of("60ms"), of("2m0s"), of("2m0s"), false},
		{of("2m0s"), of("2m0s"), of("0s"), false}, // the default
		{of("60ms"), of("2m0s"), of("60ms"), false},
		{nil, of("2m0s"), of("60ms"), true}, // the agent was restarted
		{nil, nil, of("60ms"), false},
		{of("2m0s"), of("2m0s"), nil, false},
	} {
		assert.Equal(t, shorterTimeout(c.after, c.lastKnownGood, c.local), c.want, c.lastKnownGood, "local", c.local, "then", c.after)
	}

	s := beganWith()
	s.pods.hasty = true
	s.state.Pods = append(s.state.Pods, pod("shop/new", ""))
	for _, attempt := range []string{"1", "2"} {
		s.pods.update([]component.PodRefusal{{Namespace: "shop", Name: "new", Attempt: attempt, Seen: attempt, Words: "timeout", Timeout: true}}, s.state, true, s.trial)
	}

	assert.Equal(t, s.update(), "shop/new refused (timeout)")
}

// Namespaces with many refused pods leave room for others.
func TestTheClustersOwnRefusedPodsAlwaysCount(t *testing.T) {
	s := beganWith()
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("shop/web-%d", i), fmt.Sprintf("shop-%d/web", i))
	}

	names = append(names, "kube-system/proxy", "evenkeel-system/probe", "ops/static")
	for _, name := range names {
		p := pod(name, "")
		p.Static = name == "ops/static"
		s.state.Pods = append(s.state.Pods, p)
	}

	got := s.twice(names...)
	n := strings.Count(got, "shop/")
	assert.That(t, n == maxOfNamespace && strings.Count(got, "shop-") == maxRefused-n, "%d pods of one namespace: %s", n, got)
	for _, name := range names[200:] {
		assert.That(t, strings.Contains(got, name), "%s is not among %s", name, got)
	}
}

// After a restart of a node with many namespaces, few started pods are
// remembered, and among them one of the cluster's own.
func TestFewStartedPodsAreRemembered(t *testing.T) {
	s := beganWith()
	for i := range 50 {
		s.state.Pods = append(s.state.Pods, pod(fmt.Sprintf("shop-%02d/web", i), "2"))
	}

	s.state.Pods = append(s.state.Pods, pod("kube-system/proxy", "2"))
	assert.Equal(t, s.update(), "shop-00/web started, shop-01/web started, kube-system/proxy started")
}

// refuse binds pods to the node which the kubelet cannot start.
func (w *world) refuse(names ...string) {
	var refusals []component.PodRefusal
	w.api.set(func(api *simAPI) {
		for _, name := range names {
			p := pod(name, "")
			api.pods, p.Phase = append(api.pods, p), "Pending"
			refusals = append(refusals, component.PodRefusal{Namespace: p.Namespace, Name: p.Name, Words: "CreatePodSandboxError: refused"})
		}
	})
	w.kubelet.set(func(s *kubeletState) { s.refusals = refusals })
}

func (w *world) podsStarted() string { return w.condition(v1alpha1.ConditionPodsStarted) }

func TestATrialInWhichNoPodCanStartIsRolledBack(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.pods("a")
		w.assign("uid-it", good)
		w.untilStarts(2)
		w.pass(3 * time.Second)
		w.refuse("shop/web", "blog/web")
		w.untilStarts(3)
		w.pass(time.Second)
		w.wantStarts("", good.name, "")
		const words = "left the node unable to start pods: 2 refused, pod blog/web: CreatePodSandboxError: refused, pod shop/web: CreatePodSandboxError: refused"
		w.wantReason(v1alpha1.ReasonPodsCannotStart, words)
	})
}

func TestPodsThatCannotStartAfterATrialAreReported(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.pods("a")
		w.assign("uid-it", good)
		w.promoted("uid-it")
		w.pass(time.Second)
		assert.Equal(t, w.podsStarted(), "Unknown NoPodStarted: passed; no pod was started during the trial", "after the trial")
		assert.Equal(t, counted(t, w, `evenkeel_trial_pods_started{reason="NoPodStarted"}`), "1", "the metric")
		w.refuse("shop/web", "blog/web")
		w.pass(3 * time.Minute)
		const cannot = "False PodsCannotStart: the node cannot start pods: 2 refused, pod blog/web: CreatePodSandboxError: refused, "
		assert.That(t, strings.HasPrefix(w.podsStarted(), cannot), "three minutes later: %q", w.podsStarted())
		w.wantEvent("Warning PodsCannotStart: since (UID: uid-it) became last-known-good, the node cannot start pods: 2 refused, pod blog/web")
		var more []string
		for i := range 100 {
			more = append(more, fmt.Sprintf("shop/another-%d", i))
		}

		w.refuse(more...)
		w.pass(5 * time.Minute)
		w.wantStarts("", good.name)
		said := map[string]bool{}
		for _, r := range w.reporter.all() { // the number of pods is not written
			if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionPodsStarted); c != nil {
				said[c.Message] = true
			}
		}

		assert.That(t, len(said) == 2, "a flood of pods was reported as %v", said)
	})
}
