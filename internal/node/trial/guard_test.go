// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestARestartForAChangeAsksThePodGuard(t *testing.T) {
	c := Config{Revision: "u", ConfigRevision: v1alpha1.ConfigRevision{UID: "u", SHA256: "p"}}
	good := Config{Revision: "g", ConfigRevision: v1alpha1.ConfigRevision{UID: "g", SHA256: "q"}}
	verdicts := map[string]Verdict{"": {Outcome: Accepted}, "u": {Outcome: Accepted}, "g": {Outcome: Accepted}}
	adopted := func() State {
		s := State{Current: AdoptedConfig{Config: good, Since: epoch}, LastKnownGood: AdoptedConfig{Config: good, Since: epoch}}
		s.Promoted = []Promotion{{Revision: "g", SHA256: "q"}}
		s.Run = Run{Started: true, Config: good, Healthy: true, HealthyFor: time.Hour}
		return s
	}
	o := Observed{
		Now: epoch.Add(time.Hour), Verdicts: verdicts, Child: Child{Alive: true, Healthy: true}, Node: Node{API: true, Ready: true, Pods: []string{"old"}},
		Intent: Intent{Kind: Assigned, Config: c}, Limits: Limits{TrialDuration: time.Minute, HealthTimeout: time.Minute, ReadyTimeout: time.Minute},
	}
	asked := Decide(adopted(), o)
	want := Adoption{Config: c}
	if asked.Ask == nil || *asked.Ask != want || asked.Action.Kind != None || !asked.Next.Current.Same(good) {
		t.Fatalf("without an answer: %+v, want only the question %+v", asked, want)
	}

	o.Guard = &Permit{Adoption: want, Pods: []string{"new"}}
	if d := Decide(adopted(), o); d.Ask != nil || d.Refused || d.Action.Kind != Restart || d.Next.Trial.Baseline.Pods[0] != "new" {
		t.Errorf("permitted: %+v, want a restart with the pods of the guard as the baseline", d)
	}

	o.Guard.Refusal = Verdict{Outcome: Refused, Guard: v1alpha1.ReasonWouldEvictPods, Message: "one pod"}
	if d := Decide(adopted(), o); d.Ask != nil || !d.Refused || d.Action.Kind != None || d.Status.Condition.Reason != v1alpha1.ReasonWouldEvictPods {
		t.Errorf("refused: %+v, want no restart, and the reason", d)
	}

	o.Intent.Config.RequestedTerms.AllowPodLoss = true
	if d := Decide(adopted(), o); d.Ask == nil || !d.Ask.AllowPodLoss {
		t.Errorf("with an answer to another question: %+v, want a question", d)
	}

	o.Guard, o.Verdicts = nil, map[string]Verdict{"": {Outcome: Accepted}, "u": {Outcome: Accepted}, "g": {Outcome: Accepted}}
	crashed := adopted()
	crashed.Run.Delay = 0
	o.Child, o.Intent.Config = Child{Exited: true, Spawned: true, Exit: "exit status 1"}, good
	if d := Decide(crashed, o); d.Ask != nil {
		t.Errorf("after a crash: %+v, want no question", d)
	}
}
