// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// podAPI is an API server with pods and PodDisruptionBudgets only.
type podAPI struct {
	client.Client
	pods    func(page string) (items []corev1.Pod, next string)
	budgets []policyv1.PodDisruptionBudget
	refused map[string]error // by resource
	denied  string           // the resource that the controller may not list
	lists   []string
}

func (a *podAPI) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	review := o.(*authorizationv1.SelfSubjectAccessReview)
	review.Status.Allowed = review.Spec.ResourceAttributes.Resource != a.denied
	a.lists = append(a.lists, "may "+review.Spec.ResourceAttributes.Resource)
	return a.refused["reviews"]
}

func (a *podAPI) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	switch list := list.(type) {
	case *corev1.PodList:
		a.lists = append(a.lists, fmt.Sprint("pods ", o.FieldSelector, " ", o.Continue))
		list.Items, list.Continue = a.pods(o.Continue)
		return a.refused["pods"]
	case *policyv1.PodDisruptionBudgetList:
		a.lists = append(a.lists, "budgets")
		list.Items = a.budgets
		return a.refused["budgets"]
	}

	return errors.New("no such kind")
}

// disruptionWorld returns a controller that sees one old kubelet, a rollout
// that selects it, and the input of its plan.
func disruptionWorld(t *testing.T, api *podAPI) (*Controller, *rolloutEntry, *planInput) {
	t.Helper()
	c := &Controller{fleet: newCache("", time.Second), client: api, log: slog.New(slog.DiscardHandler)}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.NodeInfo.KubeletVersion = "v1.34.4"
	c.fleet.setNode(node)
	c.fleet.setConfig(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	r := &rolloutEntry{name: "r", nodes: c.fleet.nodes}

	return c, r, &planInput{nodes: []rollout.Node{{Name: "n", Disrupts: true}}, Input: rollout.Input{Now: time.Now()}}
}

// readyPods returns Ready pods with a probe.
func readyPods(n int) (pods []corev1.Pod) {
	for range n {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{"app": "web"}}}
		p.Spec.Containers = []corev1.Container{{ReadinessProbe: &corev1.Probe{}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		pods = append(pods, p)
	}

	return pods
}

func TestPodsOfANodeAreCountedOverAllPages(t *testing.T) {
	api := &podAPI{
		pods: func(page string) ([]corev1.Pod, string) {
			return readyPods(2), map[string]string{"": "2nd", "2nd": ""}[page]
		},
		budgets: []policyv1.PodDisruptionBudget{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
			Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 3},
		}},
	}
	c, r, in := disruptionWorld(t, api)
	c.readDisruptions(t.Context(), r, in, []int{0})
	c.addDisruptions(r, in)
	got := in.nodes[0].Disruptions
	assert.That(t, got != nil && got.Error == "" && maps.Equal(got.Pods, map[string]int{"shop/web": 4}), "the node disrupts %+v", got)
	assert.That(t, in.Budgets.Allowed["shop/web"] == 3 && in.Budgets.Error == "", "the budgets are %+v", in.Budgets)
	want := []string{"budgets", "pods spec.nodeName=n ", "pods spec.nodeName=n 2nd"}
	assert.That(t, slices.Equal(api.lists, want), "it read %q, want %q", api.lists, want)
}

func TestWhatCannotBeReadIsReportedToThePlan(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(strings.Repeat("no ", 500)))
	api := &podAPI{pods: func(string) ([]corev1.Pod, string) { return nil, "more" }}
	c, r, in := disruptionWorld(t, api)
	read := func() (node, budgets string) {
		c.readDisruptions(t.Context(), r, in, []int{0})
		c.addDisruptions(r, in)
		if d := in.nodes[0].Disruptions; d != nil {
			node = d.Error
		}

		return node, in.Budgets.Error
	}
	node, budgets := read()
	assert.That(t, node == "list pods: there are more than 10000" && budgets == "", "an endless list: %q, %q", node, budgets)
	api.refused = map[string]error{"pods": forbidden}
	node, budgets = read()
	assert.That(t, strings.HasPrefix(node, "list pods: pods is forbidden") && len(node) == maxReadError && budgets == "",
		"forbidden pods: %q, %q", node, budgets)
	api.refused = map[string]error{"budgets": forbidden}
	_, budgets = read()
	assert.That(t, strings.HasPrefix(budgets, "list PodDisruptionBudgets: "), "forbidden budgets: %q", budgets)
	c.fleet.deleteConfig("n", "")
	api.refused = nil
	node, _ = read()
	assert.Equal(t, node, "node n or its NodeConfig is gone")
}

func TestPermissionsAreAskedForOnlyWhileARolloutNeedsThem(t *testing.T) {
	api := &podAPI{}
	c, r, _ := disruptionWorld(t, api)
	now := time.Now()
	c.fleet.now = func() time.Time { return now }
	asked := func(respect *bool) (may bool, questions int) {
		t.Helper()
		api.lists = nil
		o := &v1alpha1.NodeConfigRollout{}
		o.Spec.Strategy.RespectDisruptionBudgets = respect
		may = assert.Value(c.mayReadPods(t.Context(), r, o))(t)

		return may, len(api.lists)
	}
	say := func(may bool, questions int) string { return fmt.Sprint(may, questions) }
	for _, tt := range []struct {
		what    string
		after   time.Duration
		respect *bool
		denied  string
		want    string
	}{
		{"switched off", 0, new(false), "", say(false, 0)},
		{"first", 0, nil, "", say(true, 2)},
		{"soon", permissionInterval - 1, nil, "pods", say(true, 0)},
		{"later, denied", 1, new(true), "poddisruptionbudgets", say(false, 2)},
		{"soon after", deniedInterval - 1, nil, "", say(false, 0)},
		{"granted", 1, nil, "", say(true, 2)},
	} {
		now = now.Add(tt.after)
		api.denied = tt.denied
		assert.Equal(t, say(asked(tt.respect)), tt.want, tt.what)
	}

	now = now.Add(permissionInterval)
	api.refused = map[string]error{"reviews": errors.New("down")}
	assert.ErrorHas(t, assert.Err(c.mayReadPods(t.Context(), r, &v1alpha1.NodeConfigRollout{})),
		"ask whether the controller may list", "without an answer")
	api.refused["reviews"] = apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	assert.Returns(t, false, "without the right to ask")(c.mayReadPods(t.Context(), r, &v1alpha1.NodeConfigRollout{}))
	r.nodes = nil // no node on which a restart makes pods unready
	assert.Returns(t, false, "nothing to respect")(c.mayReadPods(t.Context(), r, &v1alpha1.NodeConfigRollout{}))
}

// waitsFor checks the message of a rollout's status.
func waitsFor(words string) func(status) error {
	return func(st status) error {
		return assert.Unless(strings.Contains(st.Message, words), "the message does not say %q", words)
	}
}

// answerOnce lets a node's agent accept what its NodeConfig says now.
func answerOnce(t *testing.T, node string) {
	t.Helper()
	eventually(t, func() error { return answer(t.Context(), nodeConfig(t, node), false) })
}

func TestTwoRolloutsUpdateOneControlPlaneAtATime(t *testing.T) {
	world(t)
	for _, name := range []string{"cpa", "cpb"} {
		addNodes(t, "node-role.kubernetes.io/control-plane=,pool="+name, name+"1")
	}

	apiserver := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-cpa1", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}},
		Spec:       corev1.PodSpec{NodeName: "cpa1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	assert.NoError(t, admin.Create(t.Context(), apiserver))
	t.Cleanup(func() { assert.OK(t, admin.Delete(context.Background(), apiserver, client.GracePeriodSeconds(0))) })
	setReady := func(is corev1.ConditionStatus) {
		apiserver.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}
		assert.NoError(t, admin.Status().Update(t.Context(), apiserver))
	}
	setReady(corev1.ConditionTrue)
	assigned := func(node string) error {
		s := nodeConfig(t, node).Spec.ConfigSource
		return assert.Unless(s != nil, "%s is not assigned: %+v", node, s)
	}

	c := start(t, own())
	roll(t, "cpa")
	awaitRollout(t, "cpa")
	answerOnce(t, "cpa1")
	// A new leader cannot know what was in flight before it.
	later(c, time.Minute)
	eventually(t, func() error { return assigned("cpa1") })
	roll(t, "cpb")
	awaitRollout(t, "cpb")
	answerOnce(t, "cpb1")
	awaitRollout(t, "cpb", waitsFor("waits for control plane cpa1, whose agent has not answered its assignment"))

	c.stop()
	c = start(t, own())
	later(c, time.Minute)
	awaitRollout(t, "cpb", waitsFor("waits for control plane cpa1, whose agent has not answered its assignment"))
	setReady(corev1.ConditionFalse)
	answerOnce(t, "cpa1")
	awaitRollout(t, "cpa", completeAt(1))
	awaitRollout(t, "cpb", waitsFor("waits for control plane cpa1, which may have been in flight a moment ago"))
	later(c, time.Minute)
	awaitRollout(t, "cpb", waitsFor("waits for control plane cpa1, which is not Ready again (not Ready: kube-apiserver-cpa1)"))
	assert.That(t, assigned("cpb1") != nil, "both control planes were assigned")
	setReady(corev1.ConditionTrue)
	later(c, time.Minute)
	eventually(t, func() error { return assigned("cpb1") })
	answerOnce(t, "cpb1")
	awaitRollout(t, "cpb", completeAt(1))
}

func TestStaticPodsThatCannotBeReadAreReportedToThePlan(t *testing.T) {
	api := &podAPI{pods: func(string) ([]corev1.Pod, string) { return nil, "" }}
	c, r, in := disruptionWorld(t, api)
	in.nodes[0].ControlPlane, in.ControlPlanes = true, []rollout.Node{{Name: "m", ControlPlane: true}}
	for _, tt := range []struct {
		refused error
		want    string
	}{
		{nil, ""},
		{errors.New("down"), "list pods: down"},
		{apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil), ""},
	} {
		api.refused = map[string]error{"pods": tt.refused}
		c.readStaticPods(t.Context(), r, in.Now, []string{"n", "m"})
		c.addDisruptions(r, in)
		for _, n := range []rollout.Node{in.nodes[0], in.ControlPlanes[0]} {
			assert.That(t, n.StaticPods != nil && n.StaticPods.Error == tt.want && n.StaticPods.Time.Equal(in.Now), "%s: %+v", n.Name, n.StaticPods)
		}
	}
}

// TestARolloutRereadsEveryControlPlaneThatMayHaveBeenWritten: the write can be
// another rollout's.
func TestARolloutRereadsEveryControlPlaneThatMayHaveBeenWritten(t *testing.T) {
	f := newCache("", time.Second)
	for _, name := range []string{"cp-1", "cp-2"} {
		f.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelControlPlane: ""}}})
	}

	f.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
	r := &rolloutEntry{name: "r", nodes: map[string]*nodeEntry{"cp-1": f.nodes["cp-1"]}}
	f.markUncertain("cp-2", time.Now())
	f.markUncertain("worker", time.Now())
	got := f.uncertainWrites(r)
	assert.That(t, len(got) == 1 && got[0].node == "cp-2", "%+v", got)
	others := f.otherControlPlanes(r)
	assert.That(t, len(others) == 1 && others[0].Name == "cp-2", "%+v", others)
	delete(r.nodes, "cp-1")
	assert.Equal(t, len(f.uncertainWrites(r))+len(f.otherControlPlanes(r)), 0, "without a control plane")
	f.deleteNode("cp-2")
	assert.Equal(t, len(f.planes), 1, "control planes")
}

func TestAnErrorKeepsTheAnswerAboutStartProbes(t *testing.T) {
	broken := apierrors.NewInternalError(context.DeadlineExceeded)
	agent := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "agent:v1"}}}}
	api := &podAPI{pods: func(string) ([]corev1.Pod, string) { return []corev1.Pod{agent}, "" }}
	now := then
	c := &Controller{client: api, log: slog.New(slog.DiscardHandler), fleet: newCache("", time.Second)}
	c.fleet.now = func() time.Time { return now }
	for _, step := range []struct {
		what           string
		reviews, lists error
		want           bool
	}{
		{what: "no answer yet", reviews: broken},
		{what: "an answer", want: true},
		{what: "no review", reviews: broken, want: true},
		{what: "no list", lists: broken, want: true},
	} {
		api.refused = map[string]error{"reviews": step.reviews, "pods": step.lists}
		now = now.Add(permissionInterval)
		assert.Equal(t, *c.mayProbe(t.Context(), &v1alpha1.NodeConfigRollout{}), step.want, step.what)
	}
}
