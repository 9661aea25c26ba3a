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
		a.lists = append(a.lists, "pods "+o.FieldSelector.String()+" "+o.Continue)
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
	if got := in.nodes[0].Disruptions; got == nil || got.Error != "" || !maps.Equal(got.Pods, map[string]int{"shop/web": 4}) {
		t.Errorf("the node disrupts %+v", got)
	}

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
	if node, budgets := read(); node != "list pods: there are more than 10000" || budgets != "" {
		t.Errorf("an endless list: %q, %q", node, budgets)
	}

	api.refused = map[string]error{"pods": forbidden}
	if node, budgets := read(); !strings.HasPrefix(node, "list pods: pods is forbidden") || len(node) != maxReadError || budgets != "" {
		t.Errorf("forbidden pods: %q, %q", node, budgets)
	}

	api.refused = map[string]error{"budgets": forbidden}
	if _, budgets := read(); !strings.HasPrefix(budgets, "list PodDisruptionBudgets: ") {
		t.Errorf("forbidden budgets: %q", budgets)
	}

	c.fleet.deleteConfig("n", "")
	api.refused = nil
	if node, _ := read(); node != "node n or its NodeConfig is gone" {
		t.Errorf("a node that is gone: %q", node)
	}
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
	if may, err := c.mayReadPods(t.Context(), r, &v1alpha1.NodeConfigRollout{}); err != nil || may {
		t.Errorf("without the right to ask: %v, %v", may, err)
	}

	r.nodes = nil // no node on which a restart makes pods unready
	if may, err := c.mayReadPods(t.Context(), r, &v1alpha1.NodeConfigRollout{}); err != nil || may {
		t.Errorf("nothing to respect: %v, %v", may, err)
	}
}
