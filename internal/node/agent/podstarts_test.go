// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
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

// update notes attempts to start these pods, namespace/name, and returns which pods were refused and which were started.
func (s *starting) update(refused ...string) string {
	var log []component.PodRefusal
	for _, name := range refused {
		s.clock++
		namespace, pod, _ := strings.Cut(name, "/")
		log = append(log, component.PodRefusal{Namespace: namespace, Name: pod, Attempt: fmt.Sprint(s.clock), Words: fmt.Sprintf("words %d", s.clock)})
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

func pod(name, started string) source.Pod {
	namespace, short, _ := strings.Cut(name, "/")
	return source.Pod{UID: types.UID(name), Namespace: namespace, Name: short, Started: started, Waiting: started == ""}
}

func TestAPodCountsAsRefusedAfterTwoAttempts(t *testing.T) {
	s := beganWith(pod("shop/runs", "1"))
	s.state.Pods = append(s.state.Pods, pod("shop/new", ""))
	for i, want := range []string{"", "shop/new refused (words 1)", "shop/new refused (words 1)"} {
		if got := s.update("shop/new"); got != want {
			t.Errorf("attempt %d: %q", i, got)
		}
	}
	s.pods.update([]component.PodRefusal{{Namespace: "shop", Name: "runs", Attempt: "same"}}, s.state, true, s.trial)
	s.pods.update([]component.PodRefusal{{Namespace: "shop", Name: "runs", Attempt: "same"}}, s.state, true, s.trial)
	if got := s.update(); got != "shop/new refused (words 1)" {
		t.Errorf("after the log was read twice: %q", got)
	}
	if got := s.update("shop/runs"); got != "shop/new refused (words 1), shop/runs refused (words 4)" && !strings.Contains(got, "shop/runs refused") {
		t.Errorf("a pod that ran and must be restarted: %q", got)
	}
}

func TestPodsThatFailedBeforeTheTrialDoNotCount(t *testing.T) {
	before := pod("shop/failed", "")
	before.Owner = "job"
	s := beganWith(before, pod("shop/runs", "1"))
	after := pod("shop/replacement", "")
	after.Owner = "job"
	s.state.Pods = append(s.state.Pods, after)
	for range 3 {
		if got := s.update("shop/failed", "shop/replacement"); got != "" {
			t.Errorf("refused are %q", got)
		}
	}
	s.trial = nil // nor after the trial
	if got := s.update("shop/failed", "shop/replacement"); got != "" {
		t.Errorf("after the trial, refused are %q", got)
	}
}

func TestWithoutAnAPIAtAdoptionNoPodCounts(t *testing.T) {
	s := beganWith(pod("shop/runs", "1"))
	s.trial.Baseline.API = false
	if got := s.update("shop/runs") + s.update("shop/runs"); got != "" {
		t.Errorf("refused are %q", got)
	}
}

func TestAPodThatStartsIsNoLongerRefused(t *testing.T) {
	s := beganWith(pod("shop/old", "1"))
	s.state.Pods = append(s.state.Pods, pod("shop/new", ""))
	s.update("shop/new", "shop/old")
	s.update("shop/new", "shop/old")
	s.state.Pods[1] = pod("shop/new", "2")
	if got := s.update(); got != "shop/old refused (words 2), shop/new started" {
		t.Errorf("got %q", got)
	}
	s.state.Pods = s.state.Pods[:1]
	if got := s.update(); got != "shop/old refused (words 2), shop/new started" {
		t.Errorf("after the pod that started was deleted: %q", got)
	}
	s.state.Reachable = false
	if got := s.update(); got != "shop/old refused (words 2), shop/new started" {
		t.Errorf("without the API: %q", got)
	}
}

func TestRefusalsThatNobodyWatchesAreReportedAsSuch(t *testing.T) {
	var p podStarts
	if p.update(nil, source.NodeState{}, false, nil); p.unseen {
		t.Error("unseen without a refusal")
	}
	if p.update([]component.PodRefusal{{Namespace: "shop", Name: "web", Attempt: "1"}}, source.NodeState{}, false, nil); !p.unseen || len(p.refused) > 0 {
		t.Errorf("unseen %t, refused %v", p.unseen, p.refused)
	}
}

// A flood of failing pods must neither cost memory nor change the words that are reported.
func TestAFloodOfRefusedPodsIsBounded(t *testing.T) {
	s := beganWith()
	var names []string
	for i := range 500 {
		name := fmt.Sprintf("shop/flood-%03d", i)
		names = append(names, name)
		s.state.Pods = append(s.state.Pods, pod(name, ""))
	}
	s.update(names...)
	first := s.update(names...)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 20 {
		slices.Reverse(names)
		s.update(names...)
	}
	if len(s.pods.refused) != maxRefused || s.update() != first {
		t.Errorf("%d refused, other words: %t", len(s.pods.refused), s.update() != first)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}
