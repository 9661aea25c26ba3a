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
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
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
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(colored.String(), "\x1b") {
		t.Errorf("plain:\n%q\ncolored:\n%q", plain.String(), colored.String())
	}
}

func TestTheGraphOfOneNodeIsOneLineHigh(t *testing.T) {
	v := simulationView{DurationSeconds: 600, Samples: []sampleView{{}, {AfterSeconds: 300, Nodes: v1alpha1.RolloutCounts{Updated: 1}}}}
	lines := strings.Split(v.plot(false), "\n")
	if len(lines) != 4 || !strings.Contains(lines[0], "1┤") || !strings.Contains(lines[1], "0┼") || !strings.HasPrefix(lines[2], "    0s ") {
		t.Errorf("the plot is\n%s", strings.Join(lines, "\n"))
	}

	done := simulationView{DurationSeconds: 1, Samples: []sampleView{{Nodes: v1alpha1.RolloutCounts{Updated: 1}}}}
	if lines := strings.Split(done.plot(false), "\n"); !strings.HasPrefix(lines[len(lines)-2], "    0s ") {
		t.Errorf("the plot of what is done is\n%s", strings.Join(lines, "\n"))
	}
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
	if v.EndTime == nil || !v.EndTime.Equal(end) || v.Phase != v1alpha1.RolloutWaiting || len(v.Batches) != 2 || !strings.Contains(v.Message, "waiting until "+opens.Format(time.RFC3339)) {
		t.Errorf("the plan is %+v, want the end %s", v, end)
	}

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
	assert.That(t, err != nil && strings.Contains(err.Error(), "rollout empty is invalid: spec.nodeSelector is empty"),
		"the error is %v", err)
}

func TestAnInterruptedPlanIsAnError(t *testing.T) {
	stop, cancel := context.WithCancel(t.Context())
	cancel()
	r := assert.Value(ParseManifest([]byte(planned)))(t)
	f := assert.Value(makeUp(r, 5, 1))(t)
	assert.Is(t, assert.Err(newPlanReport(stop, f, rollout.Model{})), context.Canceled, "interrupted")
}
