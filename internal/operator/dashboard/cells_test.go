// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func nodeOf(name, zone string, ready bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone, "pool": "workers"}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	if ready {
		n.Status.Conditions[0].Status = corev1.ConditionTrue
	}

	return n
}

func configOf(name string, ok metav1.ConditionStatus, reason string) *v1alpha1.NodeConfig {
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	nc.Status = v1alpha1.NodeConfigStatus{ObservedGeneration: 1, AgentVersion: "v1", Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionConfigOK, Status: ok, Reason: reason, Message: "words of " + name},
	}}

	return nc
}

// over returns the cache of a cluster in which these objects are known, for a
// user with all rights.
func over(t *testing.T, objects ...client.Object) *cache {
	t.Helper()
	s, _ := served(t, true)
	known(s.clusters[0].cache, objects...)

	return s.clusters[0].cache
}

// known makes objects known to a cluster, as its watches would.
func known(w *cache, objects ...client.Object) {
	feeds := w.feeds()
	for _, o := range objects {
		switch o.(type) {
		case *corev1.Node:
			feeds[kindNodes].Set(o)
		case *v1alpha1.NodeConfig:
			feeds[kindConfigs].Set(o)
		case *v1alpha1.NodeConfigRollout:
			feeds[kindRollouts].Set(o)
		}
	}

	for _, feed := range feeds {
		feed.Synced()
	}
}

func TestANodeOfNoRolloutIsShownAsItSaysItself(t *testing.T) {
	trial := configOf("trial", metav1.ConditionTrue, "AllChecksPassed")
	trial.Status.Trial = &v1alpha1.Trial{}
	got := over(t,
		nodeOf("fine", "z1", true), configOf("fine", metav1.ConditionTrue, "AllChecksPassed"),
		nodeOf("down", "z2", false), configOf("down", metav1.ConditionTrue, "AllChecksPassed"),
		nodeOf("failed", "", true), configOf("failed", metav1.ConditionFalse, "CrashLooped"),
		nodeOf("unknown", "", true), configOf("unknown", metav1.ConditionUnknown, "SyncFailed"), nodeOf("trial", "", true), trial,
		nodeOf("bare", "", true), configOf("orphan", metav1.ConditionTrue, "AllChecksPassed")).snapshot(t.Context(), time.Now())
	for name, want := range map[string]cell{
		"fine":    {Zone: "z1", Standing: describe.Standing{Health: describe.HealthHealthy}},
		"down":    {Zone: "z2", Standing: describe.Standing{Health: describe.HealthNotReady, Cause: "the Node is not Ready"}},
		"failed":  {Standing: describe.Standing{Health: describe.HealthFailed, Cause: "CrashLooped: words of failed"}},
		"unknown": {Standing: describe.Standing{Health: describe.HealthUnknown, Cause: "SyncFailed: words of unknown"}},
		"trial":   {Standing: describe.Standing{Health: describe.HealthOnTrial}},
		"bare":    {Standing: describe.Standing{Health: describe.HealthNoAgent, Cause: "no agent has reported"}},
	} {
		want.Name = name
		assert.Equal(t, got.Cells[name], want, name)
	}

	last := got.Summary[len(got.Summary)-1]
	assert.Equal(t, last.Words, "1 NodeConfig has no Node", "the last line")
	assert.That(t, len(got.Cells) == 6 && got.Ready && len(got.Trouble)+len(got.Notes) <= 0,
		"beside: %d cells, ready %v, %v %v", len(got.Cells), got.Ready, got.Trouble, got.Notes)
}

func TestANodeOfARolloutIsShownAsTheRolloutSeesIt(t *testing.T) {
	r := waiting()
	r.Spec.AllNodes, r.Spec.NodeSelector = false, v1alpha1.Selector{MatchLabels: map[string]string{"pool": "workers"}}
	other := nodeOf("other", "z", true)
	other.Labels["pool"] = "others"
	got := over(t, r, nodeOf("worker", "z", true), configOf("worker", metav1.ConditionTrue, "AllChecksPassed"),
		other, configOf("other", metav1.ConditionTrue, "AllChecksPassed"), nodeOf("new", "z", true)).snapshot(t.Context(), time.Now())
	for name, want := range map[string]cell{
		"worker": {Zone: "z", Rollout: "workers", Standing: describe.Standing{Health: describe.HealthHealthy, Position: describe.PositionWaiting, State: "Pending"}},
		"other":  {Zone: "z", Standing: describe.Standing{Health: describe.HealthHealthy}},
		"new": {Zone: "z", Rollout: "workers", Standing: describe.Standing{
			Health: describe.HealthNoAgent, Cause: "no agent has reported", Position: describe.PositionSkipped, State: "Stale", Why: "no NodeConfig: no agent has created one",
		}},
	} {
		want.Name = name
		assert.Equal(t, got.Cells[name], want, name)
	}

	assert.That(t, len(got.Rollouts) == 1 && got.Rollouts[0].Budget != nil && got.Rollouts[0].Budget.Of == 1,
		"the rollouts are %+v, notes %q", got.Rollouts, got.Notes)
}

func TestAnAgentIsSilentAfterTheTimeThatTheControllerHasPublished(t *testing.T) {
	now, r := time.Now(), waiting()
	r.Status.Controller = &v1alpha1.RolloutController{Namespace: "elsewhere", AgentTimeout: metav1.Duration{Duration: 10 * time.Minute}}
	objects := []client.Object{r}
	for name, ago := range map[string]time.Duration{"slow": 5 * time.Minute, "silent": 15 * time.Minute} {
		nc := configOf(name, metav1.ConditionTrue, "AllChecksPassed")
		nc.Generation = 2
		nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{RolloutRef: &v1alpha1.RolloutReference{Name: r.Name, AssignedAt: metav1.NewTime(now.Add(-ago))}}
		objects = append(objects, nodeOf(name, "z", true), nc)
	}

	got := over(t, objects...).snapshot(t.Context(), now).Cells
	assert.That(t, got["slow"].Health == describe.HealthHealthy && got["silent"].Health == describe.HealthUnknown, "they are %+v", got)
}

func TestARolloutWithoutItsTemplateShowsItsNodes(t *testing.T) {
	for name, damage := range map[string]func(*v1alpha1.NodeConfigRolloutSpec){
		"missing ConfigMap": func(s *v1alpha1.NodeConfigRolloutSpec) {
			s.Template = v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: "team", Name: "nowhere"}}
		},
		"invalid spec": func(s *v1alpha1.NodeConfigRolloutSpec) { s.Strategy.MaxUnavailable = new(intstr.FromString("many")) },
	} {
		r := waiting()
		damage(&r.Spec)
		got := over(t, r, nodeOf("worker", "z", true), configOf("worker", metav1.ConditionTrue, "AllChecksPassed")).snapshot(t.Context(), time.Now())
		c := got.Cells["worker"]
		assert.That(t, c.Rollout == "workers" && c.Position == describe.PositionWaiting && len(got.Notes) == 0,
			"%s: the node is %+v, the notes are %q", name, c, got.Notes)
	}
}

func TestRolloutsThatCannotBeSeenAreNotNone(t *testing.T) {
	w := over(t, configOf("worker", metav1.ConditionTrue, "AllChecksPassed"))
	delete(w.listed, kindRollouts)
	w.record(kindRollouts, apierrors.NewForbidden(schema.GroupResource{Resource: "nodeconfigrollouts"}, "", errors.New("no")))
	got := w.snapshot(t.Context(), time.Now())
	assert.That(t, !got.Ready && len(got.Trouble) == 1 && got.Trouble[0].What == kindRollouts,
		"ready %v, trouble %+v: the page would say that there are none", got.Ready, got.Trouble)
}

func TestTroubleSaysWhatToDo(t *testing.T) {
	for want, err := range map[string]error{
		"the cluster does not serve evenkeel.dev/v1alpha1; install evenkeel's API": &meta.NoKindMatchError{
			GroupKind: schema.GroupKind{Group: v1alpha1.GroupName, Kind: "NodeConfig"}, SearchedVersions: []string{"v1alpha1"},
		},
		"context deadline exceeded": context.DeadlineExceeded,
	} {
		got := troubleWords(err)
		assert.That(t, strings.HasPrefix(got, want), "it says %q, want %q", got, want)
	}
}

func TestWhatIsKeptOfAnObjectIsWhatIsShownOfAll(t *testing.T) {
	n := nodeOf("a", "z", true)
	n.Annotations = map[string]string{"large": strings.Repeat("x", 1000)}
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
	nc := configOf("a", metav1.ConditionFalse, "ValidationFailed")
	nc.Status.Error = strings.Repeat("ä", 2000)
	nc.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "agent"}}
	w := over(t, n, nc)
	kept := assert.Value(json.Marshal([]any{w.nodes["a"], w.configs["a"]}))(t)
	assert.That(t, len(kept) <= 3000 && !strings.Contains(string(kept), "image") && !strings.Contains(string(kept), "agent\""),
		"%d bytes are kept: %s", len(kept), kept)
}

func TestTheCacheKeepsWhatOnlyThePageShows(t *testing.T) {
	value := v1alpha1.ResolvedValue{Path: "maxPods", Value: "40", From: "10 per CPU"}
	nc := &v1alpha1.NodeConfig{Status: v1alpha1.NodeConfigStatus{
		ComponentVersion: "v1.37.2", ResolvedValues: []v1alpha1.ResolvedValue{value}, OverriddenFields: []string{"maxPods"},
		BadConfigs: []v1alpha1.BadConfig{{UID: "u1", Reason: "it crashed", Revision: "r"}},
	}}
	stripNodeConfig(nc)
	want := v1alpha1.NodeConfigStatus{
		ComponentVersion: "v1.37.2", ResolvedValues: []v1alpha1.ResolvedValue{value}, BadConfigs: []v1alpha1.BadConfig{{UID: "u1", Reason: "it crashed"}},
	}
	assert.NoDiff(t, cmp.Diff(want, nc.Status))
}

func TestTroubleHasTheTimeWhenItBeganUntilItIsOver(t *testing.T) {
	s, _ := served(t, true)
	w := s.clusters[0].cache
	w.record(kindAPI, context.DeadlineExceeded)
	begin := w.failures()[kindAPI].since
	w.record(kindAPI, fmt.Errorf("again: %w", context.DeadlineExceeded))
	failure := w.failures()[kindAPI]
	assert.That(t, failure.since == begin && strings.HasPrefix(failure.err.Error(), "again"),
		"it is %+v, want it since %s, with the newest words", failure, begin)
	got := w.snapshot(t.Context(), time.Now())
	assert.That(t, len(got.Trouble) == 1 && got.Trouble[0].Away && !got.Ready, "it is shown as %+v, ready %v", got.Trouble, got.Ready)
	w.record(kindAPI, nil)
	assert.Equal(t, len(w.failures()), 0, "failures that stay")
}

func TestAPageGetsWhatIsNewerThanWhatItHasSeenAndNoMore(t *testing.T) {
	f := newFeed(nil)
	cells := func(healths ...describe.Health) snapshot {
		p := snapshot{Cells: map[string]cell{}}
		for i, health := range healths {
			name := fmt.Sprintf("n%d", i)
			p.Cells[name] = cell{Name: name, Standing: describe.Standing{Health: health}}
		}

		return p
	}
	f.update(cells(describe.HealthHealthy, describe.HealthHealthy, describe.HealthHealthy))
	all, next := f.since(0)
	f.update(cells(describe.HealthHealthy, describe.HealthHealthy, describe.HealthHealthy))
	select {
	case <-next:
		t.Error("nothing new is news")
	default:
	}

	m, _ := f.since(all.Version)
	assert.That(t, m == nil, "nothing new is sent: %+v", m)
	f.update(cells(describe.HealthHealthy, describe.HealthOnTrial, describe.HealthHealthy))
	f.update(cells(describe.HealthHealthy, describe.HealthFailed))
	m, _ = f.since(all.Version)
	assert.That(t, len(m.Nodes) == 1 && m.Nodes[0].Health == describe.HealthFailed && len(m.Gone) == 1 && m.Gone[0] == "n2" && !m.All && m.Rest == nil,
		"two changes become %+v", m)
	m, _ = f.since(99)
	assert.That(t, m.All && len(m.Nodes) == 2 && len(m.Gone) == 0, "a page of an earlier server gets %+v", m)
	for want, c := range map[string]cellTuple{
		`["n",2,1,1,2,7,0,1,"no"]`:               {cell: cell{Name: "n", Standing: describe.Standing{Health: "Failed", Cause: "no", Position: "Blocked", State: "Skipped"}}, zone: 2, owner: 1},
		`["n",0,0,6]`:                            {cell: cell{Name: "n", Standing: describe.Standing{Health: "Healthy"}}},
		`["n",0,0,6,4,1,2,0,"","waits"]`:         {cell: cell{Name: "n", Standing: describe.Standing{Health: "Healthy", Position: "Waiting", State: "Pending", Why: "waits"}}, kubelet: 2},
		`["n",0,0,0,0,0,0,0,"","unknown words"]`: {cell: cell{Name: "n", Standing: describe.Standing{Health: "New", Position: "New", State: "New", Why: "unknown words"}}},
		// As the summary counts them: not Ready, not Ready yet, and under
		// maintenance.
		`["n",0,0,2,0,0,0,1]`: {cell: cell{Name: "n", Standing: describe.Standing{Health: "NotReady"}}},
		`["o",0,0,2]`:         {cell: cell{Name: "o", Standing: describe.Standing{Health: "NotReady", New: true}}},
		`["p",0,0,2]`:         {cell: cell{Name: "p", Standing: describe.Standing{Health: "NotReady", Maintained: true}}},
	} {
		text, err := json.Marshal(c)
		assert.That(t, err == nil && string(text) == want, "a cell is sent as %s (%v), want %s", text, err, want)
	}
}

func TestNodesThatAreGoneAreForgottenInTheEnd(t *testing.T) {
	f := newFeed(nil)
	for i := range 2 * maxRemoved {
		name := fmt.Sprint("n", i)
		f.update(snapshot{Cells: map[string]cell{name: {Name: name}}})
	}

	assert.That(t, len(f.changed) <= maxRemoved+1, "%d are remembered", len(f.changed))
	m, _ := f.since(1)
	assert.That(t, m.All && len(m.Nodes) == 1, "a page that has missed it gets %+v", m)
}

func TestARevisionIsReadWhenItsRolloutNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := served(t, true, waiting())
		w := s.clusters[0].cache
		r := waiting()
		target := func() string {
			f := assert.Value(query.Gather(t.Context(), cachedReader{w}, r, nil))(t)
			return string(f.Input.Target.ConfigMapRef.UID)
		}
		r.Spec.Template.Kubelet.Raw = []byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":99}`)
		r.Generation++
		known(w, r)
		target() // the answer, which does not have the revision, is kept
		cm := fakeapi.Revision(t, r.Name, 4, r.Spec.Template)
		assert.NoError(t, w.api.Create(t.Context(), cm))
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 4, ConfigMapRef: fakeapi.RefTo(cm)}
		known(w, r)
		assert.Equal(t, target(), string(cm.UID), "the target's UID")
	})
}
