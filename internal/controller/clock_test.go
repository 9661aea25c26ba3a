// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheClockIsSetToTheAPIServersTime(t *testing.T) {
	for name, off := range map[string]time.Duration{"an hour behind": time.Hour, "an hour ahead": -time.Hour, "right": 0} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
				w.WriteHeader(http.StatusForbidden) // a refusal has the time, too
			}))
			defer server.Close()
			at := assert.Value(serverTime(t.Context(), server.Client(), &rest.Config{Host: server.URL}))(t)
			c := newClock()
			got := c.set(at)
			assert.That(t, (got-off).Abs() <= clockTolerance, "it was off by %s, want %s", got, off)
			got = time.Until(c.now())
			assert.That(t, (got-off).Abs() <= 2*clockTolerance, "it is %s ahead of the machine's, want %s", got, off)
		})
	}
}

func TestAnAnswerWithoutADateIsAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil }))
	config := &rest.Config{Host: server.URL}
	at, err := serverTime(t.Context(), server.Client(), config)
	assert.That(t, err != nil, "it is %s", at)
	server.Close()
	at, err = serverTime(t.Context(), server.Client(), config)
	assert.That(t, err != nil, "without an API server it is %s", at)
}

func TestARolloutsTimeNeverGoesBack(t *testing.T) {
	now := then
	f := newCache("", time.Second)
	f.now = func() time.Time { return now }
	o := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}, Spec: v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}}}
	f.setRollout(o)
	ahead := func() time.Duration { return f.offsetOf(f.rollouts["r"]) }
	assert.Equal(t, ahead(), 0, "without a record")
	o.Status.StepTime = new(metav1.NewTime(then.Add(-time.Hour)))
	assert.Equal(t, ahead(), 0, "after an older time")
	o.Status.StepTime = new(metav1.NewTime(then.Add(time.Hour)))
	assert.Equal(t, ahead(), time.Hour, "after a time in an hour")
	o.Status.StepTime = nil
	m := &model{name: "n", ready: true, generation: 1}
	m.source = &v1alpha1.NodeConfigSource{
		ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: "s", Name: "c", UID: "u", SHA256: "s"},
		RolloutRef:   &v1alpha1.RolloutReference{Name: "r", Revision: 1, Attempt: 1, AssignedAt: metav1.NewTime(then.Add(fleet.MaxAhead))},
	}
	node, nc := m.objects(func(t time.Time) time.Time { return t })
	f.setNode(node)
	f.setConfig(nc)
	assert.Equal(t, ahead(), fleet.MaxAhead, "after an assignment in a minute")
}

// TestForgedRecordsMoveNoClock gives one of two nodes records that no
// controller can have written. The clock of the rollout stays, the other node
// still soaks, and the state of the first one says what was ignored.
func TestForgedRecordsMoveNoClock(t *testing.T) {
	future := metav1.NewTime(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))
	source := func(edit func(*v1alpha1.RolloutReference)) *v1alpha1.NodeConfigSource {
		ref := &v1alpha1.RolloutReference{Name: "r", Revision: 1, Attempt: 1, AssignedAt: metav1.NewTime(then.Add(-time.Hour))}
		if edit != nil {
			edit(ref)
		}

		return &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: "s", Name: "c", UID: "u1", SHA256: "s1"}, RolloutRef: ref}
	}
	const observed = "the annotation evenkeel.dev/observed"
	mark := func(forged string) string { return `{"rollout":"r","revision":1,"attempt":1,` + forged + `}` }
	for name, tt := range map[string]struct {
		mark    string
		edit    func(*v1alpha1.RolloutReference)
		ignored string
	}{
		"soaked in 2200":        {mark(`"fineSince":"2200-01-01T00:00:00Z"`), nil, observed},
		"in an odd year":        {mark(`"fineSince":"9999-12-31T23:59:59-23:59"`), nil, observed},
		"blocked in 2200":       {mark(`"blockedAt":"2200-01-01T00:00:00Z"`), nil, observed},
		"maintained in 2200":    {mark(`"maintenance":{"ended":"2200-01-01T00:00:00Z"}`), nil, observed},
		"a negative time":       {mark(`"maintenance":{"total":-3600000000000}`), nil, observed},
		"failed in attempt max": {mark(`"failedInAttempt":9223372036854775807`), nil, observed},
		"no observation":        {`{`, nil, observed},
		"assigned in 2200":      {"", func(r *v1alpha1.RolloutReference) { r.AssignedAt = future }, "the time of its rolloutRef"},
		"revision max":          {"", func(r *v1alpha1.RolloutReference) { r.Revision = 1<<63 - 1 }, "its rolloutRef"},
		"attempt max":           {"", func(r *v1alpha1.RolloutReference) { r.Attempt = 1<<63 - 1 }, "its rolloutRef"},
		"term max":              {"", func(r *v1alpha1.RolloutReference) { r.Term = 1<<63 - 1 }, "its rolloutRef"},
	} {
		t.Run(name, func(t *testing.T) {
			now := then
			good := &v1alpha1.ConfigRevision{UID: "u1", SHA256: "s1"}
			node := func(name string, source *v1alpha1.NodeConfigSource, mark string) *model {
				return &model{name: name, ready: true, generation: 1, answered: 1, ok: metav1.ConditionTrue, active: good, good: good,
					source: source, mark: mark}
			}
			honest := node("a", source(nil), mark(`"fineSince":"`+then.Add(-time.Minute).UTC().Format(time.RFC3339)+`"`))
			forged := node("b", source(tt.edit), tt.mark)
			o := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}, Spec: v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}, SoakSeconds: 3600}}
			l := lead(&now, o, []*model{honest, forged}, func(_ *model, t time.Time) time.Time { return t })
			assert.Equal(t, l.fleet.offsetOf(l.fleet.rollouts["r"]), 0, "the clock is ahead")
			for _, number := range l.fleet.objectsOf(l.fleet.rollouts["r"].object).Assigned {
				assert.That(t, number == 1, "a node was assigned revision %d", number)
			}

			wants := fleet.Build(fleet.Objects{Rollout: o, Settings: fleet.DefaultSettings, Now: now})
			wants.Invalid, wants.Target = "", v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: "s", Name: "c", UID: "u1", SHA256: "s1"}}
			wants.Status = v1alpha1.NodeConfigRolloutStatus{UpdateRevision: &v1alpha1.RolloutRevision{Number: 1}, Attempt: 1}
			result := l.plan(wants)
			assert.That(t, result.States[0] == rollout.Soaking, "the other node is %s", result.States[0])
			assert.That(t, result.States[1] == rollout.Soaking || result.States[1] == rollout.Manual, "the node is %s", result.States[1])
			if s := result.NodeState(1); !strings.HasSuffix(s.Message, "ignored, because the controller did not write it: "+tt.ignored) {
				t.Errorf("the state says %q", s.Message)
			}
		})
	}
}

func TestNotReadyBeginsWhenTheControllerSeesIt(t *testing.T) {
	now := then
	f := newCache("", time.Second)
	f.now = func() time.Time { return now }
	see := func(status corev1.ConditionStatus, at time.Time) time.Time {
		f.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(at)},
		}}})
		return f.nodes["n"].observed.WentNotReady
	}
	if got := see(corev1.ConditionTrue, then.Add(-time.Hour)); !got.IsZero() {
		t.Errorf("a node that is Ready went NotReady at %s", got)
	}

	now = then.Add(time.Minute)
	for _, at := range []time.Time{then.AddDate(-10, 0, 0), then.AddDate(1000, 0, 0)} {
		got := see(corev1.ConditionFalse, at)
		assert.That(t, got.Equal(then.Add(time.Minute)), "it went NotReady at %s", got)
		now = now.Add(time.Minute)
	}

	if got := see(corev1.ConditionUnknown, now); !got.Equal(then.Add(time.Minute)) {
		t.Errorf("NotReady in another way it went so at %s", got)
	}

	see(corev1.ConditionTrue, now)
	if got := see(corev1.ConditionFalse, then); !got.Equal(now) {
		t.Errorf("again, it went NotReady at %s, want %s", got, now)
	}

	for status, want := range map[corev1.ConditionStatus]time.Time{corev1.ConditionFalse: now, corev1.ConditionUnknown: then} { // as it is first seen
		f.deleteNode("n")
		got := see(status, then)
		assert.That(t, got.Equal(want), "%s as it is first seen: it went NotReady at %s, want %s", status, got, want)
	}

	f.deleteNode("n")
	if got := see(corev1.ConditionUnknown, now.Add(time.Hour)); !got.Equal(now) {
		t.Errorf("Unknown in the future: it went NotReady at %s", got)
	}
}

// model is a node and its agent, as it is and as of when, in right time.
type model struct {
	name       string
	ready      bool
	readyAt    time.Time
	source     *v1alpha1.NodeConfigSource
	revoked    []types.UID
	generation int64
	answered   int64
	active     *v1alpha1.ConfigRevision
	good       *v1alpha1.ConfigRevision
	goodAt     time.Time
	trialAt    time.Time // zero: none
	ok         metav1.ConditionStatus
	okAt       time.Time
	mark       string
}

// objects are what the API has of the node, with the times that it writes by
// its own clock.
func (m *model) objects(clock func(time.Time) time.Time) (*corev1.Node, *v1alpha1.NodeConfig) {
	at := func(t time.Time) metav1.Time { return metav1.NewTime(clock(t).Truncate(time.Second)) }
	status := corev1.ConditionFalse
	if m.ready {
		status = corev1.ConditionTrue
	}

	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.name, CreationTimestamp: metav1.NewTime(then.Add(-time.Hour))},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: at(m.readyAt)}}},
	}
	nc := &v1alpha1.NodeConfig{
		ObjectMeta: metav1.ObjectMeta{Name: m.name, UID: types.UID(m.name), Generation: m.generation},
		Spec:       v1alpha1.NodeConfigSpec{ConfigSource: m.source, Revoked: m.revoked},
		Status:     v1alpha1.NodeConfigStatus{ObservedGeneration: m.answered, AgentVersion: "v1", Active: m.active},
	}
	if m.mark != "" {
		nc.Annotations = map[string]string{v1alpha1.AnnotationObserved: m.mark}
	}
	if m.good != nil {
		nc.Status.LastKnownGood = &v1alpha1.LastKnownGoodConfig{ConfigRevision: *m.good, Since: new(at(m.goodAt))}
	}
	if !m.trialAt.IsZero() {
		nc.Status.Trial = &v1alpha1.Trial{StartTime: new(at(m.trialAt)), DurationSeconds: 60}
	}
	if m.ok != "" {
		nc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigOK, Status: m.ok, Reason: "R", LastTransitionTime: at(m.okAt)}}
	}
	if m.ok == metav1.ConditionFalse {
		nc.Status.BadConfigs = []v1alpha1.BadConfig{{UID: "bad", Time: new(at(m.okAt))}}
	}

	return node, nc
}

// say changes ConfigOK.
func (m *model) say(now time.Time, status metav1.ConditionStatus) {
	if m.ok != status {
		m.ok, m.okAt = status, now
	}
}

// act does what the agent has to do by now: fails says how a trial ends.
func (m *model) act(now time.Time, fails bool) {
	if m.answered != m.generation {
		m.answered = m.generation
		m.active, m.trialAt = nil, time.Time{}
		if s := m.source; s != nil && s.ConfigMapRef != nil {
			m.active = &v1alpha1.ConfigRevision{UID: s.ConfigMapRef.UID, SHA256: s.ConfigMapRef.SHA256}
			if m.good == nil || m.good.SHA256 != m.active.SHA256 {
				m.trialAt = now
			}
		}

		m.say(now, metav1.ConditionTrue)
	}

	if m.trialAt.IsZero() || now.Before(m.trialAt.Add(time.Minute)) {
		return
	}

	m.trialAt = time.Time{}
	if fails {
		m.active = m.good
		m.say(now, metav1.ConditionFalse)
		return
	}

	m.good, m.goodAt = m.active, now
}

// leader is a controller without an API server.
type leader struct {
	fleet *cache
	nodes []rollout.Node
	clock func(m *model, t time.Time) time.Time // of the nodes
}

func lead(now *time.Time, o *v1alpha1.NodeConfigRollout, all []*model, clock func(*model, time.Time) time.Time) *leader {
	l := &leader{fleet: newCache("", time.Second), clock: clock}
	l.fleet.now = func() time.Time { return *now }
	l.fleet.setRollout(o)
	l.see(all)
	l.fleet.endOutage(time.Time{})

	return l
}

func (l *leader) see(all []*model) {
	for _, m := range all {
		node, nc := m.objects(func(t time.Time) time.Time { return l.clock(m, t) })
		l.fleet.setNode(node)
		l.fleet.setConfig(nc)
	}
}

func (l *leader) plan(in rollout.Input) rollout.Result {
	r := l.fleet.rollouts["r"]
	l.nodes, _ = l.fleet.planNodes(r, r.object.Generation, l.nodes[:0])
	in.Outages = l.fleet.outages
	return rollout.Plan(in, l.nodes)
}

// TestNodeClocksDoNotChangePlans plays histories twice: with nodes whose clocks
// are right, and with nodes whose clocks are hours off, go back, or are in
// another century. What is decided is the same.
func TestNodeClocksDoNotChangePlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := then
		right := func(_ *model, at time.Time) time.Time { return at }
		wrong := func(_ *model, at time.Time) time.Time {
			switch rapid.IntRange(0, 4).Draw(t, "clock") {
			case 0:
				return at.Add(time.Duration(rapid.IntRange(-7200, 7200).Draw(t, "seconds off")) * time.Second)
			case 1:
				return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
			case 2:
				return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
			case 3:
				return then.Add(then.Sub(at)) // it goes backwards
			}

			return at
		}
		var all []*model
		for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			all = append(all, &model{name: fmt.Sprintf("n%d", i), ready: true, readyAt: then.Add(-time.Hour), generation: 1, answered: 1, ok: metav1.ConditionTrue, okAt: then.Add(-time.Hour)})
		}

		o := &v1alpha1.NodeConfigRollout{
			ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r", CreationTimestamp: metav1.NewTime(then)},
			Spec:       v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}, SoakSeconds: int32(rapid.IntRange(0, 300).Draw(t, "soak"))},
		}
		o.Spec.FailurePolicy.MaxFailures = new(intOrString("2"))
		o.Spec.Strategy.MaxUnavailable = new(intOrString("60%"))
		if rapid.Bool().Draw(t, "rollback") {
			o.Spec.FailurePolicy.Action = v1alpha1.FailureActionRollback
		}

		a, b := lead(&now, o, all, right), lead(&now, o, all, wrong)
		target := v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: "s", Name: "r-1", UID: "u1", SHA256: "s1"}}
		var retry *v1alpha1.RolloutRetry
		was := v1alpha1.NodeConfigRolloutStatus{}
		for range rapid.IntRange(5, 40).Draw(t, "passes") {
			m := all[rapid.IntRange(0, len(all)-1).Draw(t, "node")]
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1:
				m.ready, m.readyAt = !m.ready, now
			case 2:
				m.say(now, metav1.ConditionUnknown)
			case 3:
				m.say(now, metav1.ConditionTrue)
			case 4:
				target = v1alpha1.RolloutRevision{Number: target.Number + 1, ConfigMapRef: v1alpha1.ConfigMapReference{
					Namespace: "s", UID: types.UID(fmt.Sprintf("u%d", target.Number%2)), SHA256: fmt.Sprintf("s%d", target.Number%2),
				}}
				target.ConfigMapRef.Name = "r-" + target.ConfigMapRef.SHA256
			case 5:
				retry = &v1alpha1.RolloutRetry{Revision: target.Number, Attempt: was.Attempt + 1}
			case 6: // another leader, which knows what is recorded
				a, b = lead(&now, o, all, right), lead(&now, o, all, wrong)
			}

			for _, m := range all {
				if rapid.IntRange(0, 3).Draw(t, "acts") > 0 {
					m.act(now, rapid.IntRange(0, 5).Draw(t, "fails") == 0)
				}
			}

			a.see(all)
			b.see(all)
			wants := fleet.Build(fleet.Objects{Rollout: o, Settings: fleet.DefaultSettings, Now: now})
			wants.Invalid, wants.Target, wants.Spec.Retry, wants.Status = "", target, retry, was
			x, y := a.plan(wants), b.plan(wants)
			if !reflect.DeepEqual(x.Moves, y.Moves) || !reflect.DeepEqual(x.Next, y.Next) || !reflect.DeepEqual(x.Observations, y.Observations) || !reflect.DeepEqual(x.States, y.States) {
				t.Fatalf("with right clocks %v, %+v, %+v; with wrong ones %v, %+v, %+v", x.States, x.Moves, x.Next, y.States, y.Moves, y.Next)
			}

			was = x.Next
			for i, o := range x.Observations {
				m := all[i]
				m.mark = ""
				if o.Rollout != "" {
					m.mark = assert.Value(fleet.ObservationText(o))(t)
				}
			}

			for _, move := range x.Moves {
				m, spec := all[move.Node], specOf(&rollout.Node{}, move)
				m.source, m.revoked = spec.ConfigSource, spec.Revoked
				m.generation++
			}

			a.see(all)
			b.see(all)
			now = now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
		}
	})
}

// TestPlansContainNoTimeThatANodeWrote holds fleet.NodeOf to it, for every
// field that a node can write.
func TestPlansContainNoTimeThatANodeWrote(t *testing.T) {
	m := &model{name: "n", ready: true, readyAt: then, generation: 1, answered: 1, ok: metav1.ConditionFalse, okAt: then, trialAt: then, goodAt: then,
		good: &v1alpha1.ConfigRevision{UID: "u", SHA256: "s"}, active: &v1alpha1.ConfigRevision{UID: "u", SHA256: "s"}}
	node, nc := m.objects(func(t time.Time) time.Time { return t })
	later, lateConfig := m.objects(func(t time.Time) time.Time { return t.Add(time.Hour) })
	a, b := fleet.NodeOf(node, nc), fleet.NodeOf(later, lateConfig)
	assert.That(t, reflect.DeepEqual(a, b), "%+v is not %+v", a, b)
	text := assert.Value(json.Marshal(nc.Status))(t)
	again, _ := json.Marshal(lateConfig.Status)
	assert.That(t, string(text) != string(again), "the two are the same, and prove nothing")
}

// TestAMoveReplacesOnlyTheSpecOfItsPlan changes a spec between the plan and the
// write, as kubectl evenkeel assign does.
func TestAMoveReplacesOnlyTheSpecOfItsPlan(t *testing.T) {
	m := &model{name: "n", ready: true, generation: 1}
	node, nc := m.objects(func(t time.Time) time.Time { return t })
	planned := fleet.NodeOf(node, nc)
	c := &Controller{fleet: newCache("", time.Second)}
	m.generation = 2
	node, nc = m.objects(func(t time.Time) time.Time { return t })
	c.fleet.setNode(node)
	c.fleet.setConfig(nc)
	err := c.moveNode(t.Context(), &planned, rollout.Move{Kind: rollout.TakeBack}, nil)
	assert.That(t, errors.Is(err, errConflict), "%v", err)
}

// seenNode is a Node as a watch has it. Its clock is wrong.
func seenNode(ready, cordoned bool, conditions ...corev1.NodeConditionType) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(then.AddDate(10, 0, 0))}}
	for _, c := range conditions {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(then.AddDate(-10, 0, 0))})
	}

	return n
}

func TestMaintenanceBeginsWhenTheControllerSeesIt(t *testing.T) {
	now := then
	f := newCache("", time.Second)
	f.now = func() time.Time { return now }
	see := func(n *corev1.Node) rollout.Node {
		f.setNode(n)
		return f.nodes["n"].observed
	}
	if n := see(seenNode(true, false)); n.Maintenance != "" || !n.MaintenanceSince.IsZero() {
		t.Errorf("a node at rest is seen under maintenance %q since %s", n.Maintenance, n.MaintenanceSince)
	}

	now = then.Add(time.Minute)
	if n := see(seenNode(true, true)); n.Maintenance != rollout.Cordoned || !n.MaintenanceSince.Equal(now) {
		t.Errorf("it is seen under maintenance %q since %s", n.Maintenance, n.MaintenanceSince)
	}

	now = then.Add(time.Minute + 300*time.Millisecond)
	if n := see(seenNode(false, false, corev1.NodeDrained)); n.Maintenance != "condition Drained" || !n.MaintenanceSince.Equal(then.Add(time.Minute)) || !n.MaintenanceSince.Before(n.WentNotReady) {
		t.Errorf("after a cordon it is under maintenance %q since %s, and went NotReady at %s", n.Maintenance, n.MaintenanceSince, n.WentNotReady)
	}

	now = then.Add(2 * time.Minute)
	see(seenNode(false, false))
	now = then.Add(3 * time.Minute)
	if n := see(seenNode(false, true)); n.MaintenanceSince.Before(n.WentNotReady) {
		t.Errorf("cordoned again at %s, it counts from %s; it went NotReady at %s", now, n.MaintenanceSince, n.WentNotReady)
	}

	f.deleteNode("n")
	now = then.Add(4 * time.Minute)
	if n := see(seenNode(true, true)); !n.MaintenanceSince.Equal(now) {
		t.Errorf("created again, it is under maintenance since %s", n.MaintenanceSince)
	}
}

// Within one second, too, the order counts: a health check may cordon a node as
// soon as it is NotReady.
func TestACordonJustAfterNotReadyComesAfterIt(t *testing.T) {
	now := then
	f := newCache("", time.Second)
	f.now = func() time.Time { return now }
	f.setRollout(&v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}, Spec: v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}}})
	for _, n := range []*corev1.Node{seenNode(true, false), seenNode(false, false), seenNode(false, true)} {
		f.setNode(n)
		now = now.Add(200 * time.Millisecond)
	}

	nodes, _ := f.planNodes(f.rollouts["r"], 0, nil)
	assert.That(t, !nodes[0].MaintenanceSince.Before(nodes[0].WentNotReady),
		"maintenance began at %s, NotReady at %s", nodes[0].MaintenanceSince, nodes[0].WentNotReady)
}

// A leader that sees a node for the first time does not know what came first,
// unless the node's observation says so.
func TestANewLeaderDoesNotExcuseWhatItSeesFirst(t *testing.T) {
	f := newCache("", time.Second)
	f.now = func() time.Time { return then }
	f.setNode(seenNode(false, true, corev1.NodeMaintenanceInProgress))
	n := f.nodes["n"].observed
	assert.That(t, !n.MaintenanceSince.Before(n.WentNotReady), "maintenance began at %s, NotReady at %s", n.MaintenanceSince, n.WentNotReady)
}
