// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestAnInstallationIsWhatTheManifestsHave(t *testing.T) {
	kinds := map[string]int{}
	for _, p := range assert.Value(Manifests())(t) {
		kinds[p.Of+" "+p.Want.GetKind()]++
	}

	for _, kind := range []string{
		"api CustomResourceDefinition", "api Namespace", "api ClusterRole", "api ClusterRoleBinding", "api Role", "api RoleBinding", "people ClusterRole",
		"api ValidatingAdmissionPolicy", "api ValidatingAdmissionPolicyBinding", "controller ServiceAccount", "controller ClusterRole", "controller FlowSchema",
	} {
		assert.That(t, kinds[kind] != 0, "no %s among %v", kind, kinds)
	}
}

func TestALabelIsAsOldAsItsWriterSays(t *testing.T) {
	made, written, later := metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now.Add(-time.Minute)), metav1.NewTime(now)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: made, Labels: map[string]string{v1alpha1.LabelAgent: "install"}}}
	n := &Node{}
	n.setNode(node)
	assert.That(t, n.Label == "install" && n.LabelSince.Equal(made.Time), "who wrote it is not known: %+v", n)
	fields := func(text string) *metav1.FieldsV1 { return metav1.NewFieldsV1(text) }
	node.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl-evenkeel", Time: &written, FieldsV1: fields(`{"f:metadata":{"f:labels":{"f:evenkeel.dev/agent":{}}}}`)},
		{Manager: "kubelet", Time: &later, FieldsV1: fields(`{"f:metadata":{"f:labels":{"f:evenkeel.dev/agent-failed":{}}}}`)}, {Manager: "nobody"},
	}
	n.setNode(node)
	assert.That(t, n.LabelSince.Equal(written.Time), "since %s, want %s", n.LabelSince, written)
}

func TestAClockIsComparedWithTheAPIServers(t *testing.T) {
	heartbeat, written := metav1.NewTime(now.Add(-3*time.Hour)), metav1.NewTime(now)
	fields := `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{}}}}}`
	for name, tt := range map[string]struct {
		fields, of string
		want       time.Duration
	}{
		"the kubelet's report":  {fields, "Ready", -3 * time.Hour},
		"somebody else's write": {strings.ReplaceAll(fields, "lastHeartbeatTime", "status"), "Ready", 0},
		"another condition":     {strings.ReplaceAll(fields, "Ready", "ConfigOK"), "Ready", 0},
		"no condition Ready":    {fields, "DiskPressure", 0},
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeConditionType(tt.of), LastHeartbeatTime: heartbeat}}}}
		node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "nobody"}, {Manager: "kubelet", Time: &written, FieldsV1: metav1.NewFieldsV1(tt.fields)}}
		n := &Node{}
		n.setNode(node)
		assert.Equal(t, n.ClockAhead, tt.want, name)
	}
}

// leaseOf is the Lease of a controller, last renewed so long ago.
func leaseOf(ago time.Duration, seconds int32) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease}}
	renewed := metav1.NewMicroTime(time.Now().Add(-ago))
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("pod-1_42"), RenewTime: &renewed, LeaseDurationSeconds: &seconds}

	return lease
}

func TestAnAPIServerThatGoesAwayInTheMiddleIsNoDiagnosis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapi.New(t)
		api.AddNode("a", "pool", "z")
		api.AddNodeConfig("a", &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: "ns", Name: "x", UID: "y"}}, nil)
		fakeapi.Add(api, leaseOf(time.Hour, 1))
		errAway := errors.New("the API server went away")
		calls, failing := 0, 0
		answers := func() error {
			if calls++; calls == failing {
				return errAway
			}

			return nil
		}
		counted := interceptor.NewClient(api, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				return cmp.Or(answers(), c.Get(ctx, key, o, opts...))
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				return cmp.Or(answers(), c.List(ctx, list, opts...))
			},
		})
		f, err := Look(t.Context(), counted)
		assert.Must(t, err == nil && !f.Lease.Alive && len(f.Nodes) == 1, "%+v, %v", f, err)
		whole := calls
		for _, failing = range []int{1, 2, 3, whole - 4, whole - 3, whole - 2, whole - 1, whole} {
			calls = 0
			_, err := Look(t.Context(), counted)
			if calls < failing { // the last look at the Lease may come too late to be made
				continue
			}

			assert.That(t, errors.Is(err, errAway) && (strings.Contains(err.Error(), "get ") || strings.Contains(err.Error(), "list ")),
				"call %d of %d fails: %v", failing, whole, err)
		}
	})
}

func TestADeadControllerIsToldFromAWrongClock(t *testing.T) {
	for renews, want := range map[bool]bool{false: false, true: true} {
		synctest.Test(t, func(t *testing.T) {
			api := fakeapi.New(t)
			lease := fakeapi.Add(api, leaseOf(time.Hour, 30)) // on the controller's clock
			if renews {
				time.AfterFunc(20*time.Second, func() {
					lease.Spec.RenewTime = new(metav1.NewMicroTime(lease.Spec.RenewTime.Add(20 * time.Second)))
					api.Write(lease)
				})
			}

			f, err := Look(t.Context(), api)
			assert.That(t, err == nil && f.Lease.Alive == want && f.Lease.Holder == "pod-1_42", "renews: %t, and it is %+v, %v", renews, f.Lease, err)
		})
	}
}

func TestAnAgentOwesAnAnswerSinceTheSpecWasWritten(t *testing.T) {
	made, written, reported := metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now.Add(-time.Minute)), metav1.NewTime(now)
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Generation: 2, CreationTimestamp: made, ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "controller", Time: &written}, {Manager: "agent", Subresource: "status", Time: &reported}, {Manager: "nobody"},
	}}}
	for _, tt := range []struct {
		name   string
		change func(*v1alpha1.NodeConfig)
		want   time.Time
	}{
		{"it has not answered", func(*v1alpha1.NodeConfig) {}, written.Time},
		{"it has", func(nc *v1alpha1.NodeConfig) { nc.Status.ObservedGeneration = 2 }, time.Time{}},
		{"it takes its configuration from elsewhere", func(nc *v1alpha1.NodeConfig) { nc.Status.RemoteConfig = v1alpha1.RemoteConfigConfigMap }, time.Time{}},
		{"who wrote it is not known", func(nc *v1alpha1.NodeConfig) { nc.ManagedFields = nil }, made.Time},
	} {
		n, nc := &Node{}, nc.DeepCopy()
		tt.change(nc)
		n.setConfig(nc)
		var since time.Time
		if !n.Answered {
			since = n.Asked
		}

		assert.That(t, since.Equal(tt.want), "%s: since %s, want %s", tt.name, since, tt.want)
	}
}

// Nodes that an autoscaler removed leave the fleet at once, and dead nodes do
// not pass as healthy.
func TestOnlyNodesThatExistCount(t *testing.T) {
	api := fakeapi.New(t)
	for _, name := range []string{"fine", "bare"} {
		api.AddNode(name, "pool", "z")
	}

	joins := api.AddNode("joins", "pool", "z")
	joins.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	api.Report(joins)
	down := api.AddNodeOf(time.Hour, "down", "pool", "z")
	down.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	api.Report(down)
	for _, name := range []string{"fine", "down", "removed-1", "removed-2"} {
		api.AddNodeConfig(name, nil, nil)
	}

	f := assert.Value(Look(t.Context(), api))(t)
	r := NewReport(f)
	assert.That(t, r.Nodes == 4 && r.Agents == 2, "%d nodes, %d agents", r.Nodes, r.Agents)
	assert.Equal(t, strings.Join(summaryOf(f, nil).Words(describe.LevelProblem), ", "), "1 node not Ready", "the problems")
	at := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Check == "not-ready" })
	assert.That(t, at >= 0 && slices.Equal(r.Findings[at].Names, []string{"down"}), "not Ready: %+v", r.Findings)
	at = slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Check == "left-over" })
	assert.Must(t, at >= 0, "the NodeConfigs are not reported: %+v", r.Findings)
	assert.Equal(t, r.Findings[at].Object+" "+r.Findings[at].Wrong, "2 NodeConfigs have no Node: removed-1, removed-2", "it")
	f = assert.Value(Look(t.Context(), interceptor.NewClient(api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, nodes := list.(*corev1.NodeList); nodes {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no"))
			}

			return c.List(ctx, list, o...)
		}})))(t)
	assert.That(t, len(f.Nodes) == 4 && len(f.Orphans) == 0, "without permission: %d nodes, %q", len(f.Nodes), f.Orphans)
	assert.Equal(t, summaryOf(f, nil).Level(), describe.LevelOK, "the level")
}
