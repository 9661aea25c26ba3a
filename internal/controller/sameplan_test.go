// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestTheControllerAndTheCLIPlanTheSame draws fleets, and compares the plan of
// query.Gather, which the command line and the page show, with the plan that
// the controller makes of the same objects afterwards.
func TestTheControllerAndTheCLIPlanTheSame(t *testing.T) {
	const cases = 24
	seen := map[string]int{}
	missing := func() []string {
		return slices.DeleteFunc(slices.Collect(maps.Keys(seen)), func(what string) bool { return seen[what] > 0 })
	}
	for range 30 { // some cases are rare, and -short tries a fifth
		rapid.Check(t, func(t *rapid.T) { comparePlans(t, seen) })
		if len(missing()) == 0 || t.Failed() {
			assert.That(t, t.Failed() || len(seen) >= cases, "only %d cases are known, want %d: %v", len(seen), cases, seen)
			return
		}
	}

	// A generator that never draws a case proves nothing about it.
	t.Errorf("no plan that was compared has: %s; %v", strings.Join(missing(), ", "), seen)
}

func comparePlans(t *rapid.T, seen map[string]int) {
	now := time.Now().Truncate(time.Second)
	d := drawnFleet{T: t, now: now, settings: v1alpha1.RolloutController{
		Namespace:         rapid.SampledFrom([]string{v1alpha1.SystemNamespace, "elsewhere"}).Draw(t, "namespace"),
		AgentTimeout:      metav1.Duration{Duration: rapid.SampledFrom([]time.Duration{time.Minute, 5 * time.Second, 10 * time.Minute}).Draw(t, "agent timeout")},
		NotReadyGrace:     metav1.Duration{Duration: rapid.SampledFrom([]time.Duration{30 * time.Second, 0, 5 * time.Minute}).Draw(t, "NotReady grace")},
		PrometheusServers: rapid.SampledFrom([][]string{{}, {"main"}, {"main", "other"}}).Draw(t, "servers"),
		Drain:             rapid.SampledFrom([]*bool{nil, new(true), new(true), new(false)}).Draw(t, "may drain"),
		Maintenance:       rapid.SampledFrom([][]string{nil, {"example.com/Repair"}}).Draw(t, "maintenance"),
	}}
	d.draw()

	api := d.api()
	shown, err := query.Gather(t.Context(), api, &d.rollouts[0], nil)
	assert.NoError(t, err)
	shown.Input.Now = shown.Input.Now.Truncate(time.Second) // as the API keeps times
	for i := range shown.Nodes {
		n := &shown.Nodes[i]
		n.MaintenanceSince = n.MaintenanceSince.Truncate(time.Second)
	}

	c := d.controller(api, shown.Input.Now)
	c.startProbes.asked, c.startProbes.may, c.startProbes.agents = shown.Input.Now, d.chance(2, "may create pods"), true
	r := c.fleet.rollouts["r"]
	wants, err := c.inputOf(t.Context(), r, r.object)
	assert.NoError(t, err)
	nodes, _ := c.fleet.planNodes(r, r.object.Generation, nil)

	shown.Input.Controller.StartProbe = wants.Controller.StartProbe // as in the status since its last plan

	if shown.Input.Target.ConfigMapRef.UID == fleet.UIDNotCreated { // the controller has made it
		assert.Must(t, wants.Target.ConfigMapRef.UID != fleet.UIDNotCreated, "the controller plans for a ConfigMap that does not exist")
		shown.Input.Target.ConfigMapRef.UID = wants.Target.ConfigMapRef.UID
	}

	same := func(what string, shown, is any) {
		if diff := gocmp.Diff(shown, is, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(rollout.Result{}, "NodeState")); diff != "" {
			t.Fatalf("%s: shown (-), by the controller (+):\n%s", what, diff)
		}
	}
	same("input", shown.Input, wants)
	same("nodes", shown.Nodes, nodes)
	result := rollout.Plan(wants, nodes)
	same("plan", shown.Plan(), result)

	for what, is := range map[string]bool{
		"moves": len(result.Moves) > 0, "stopped": len(wants.Stopped) > 0, "stopped elsewhere": slices.ContainsFunc(wants.Stopped, func(name string) bool { return strings.HasPrefix(name, "other-") }), "last succeeded": wants.LastSucceeded.Number > 0,
		"by history":      wants.LastSucceeded.Number > 0 && r.object.Status.CurrentRevision == nil,
		"other namespace": d.settings.Namespace != v1alpha1.SystemNamespace, "other times": d.settings.AgentTimeout != fleet.DefaultSettings.AgentTimeout || d.settings.NotReadyGrace != fleet.DefaultSettings.NotReadyGrace,
		"new rollout": r.object.Status.UpdateRevision == nil, "invalid": wants.Invalid != "",
		"missing ConfigMap":  r.object.Spec.Template.ConfigMapRef != nil && d.source == nil,
		"template ConfigMap": r.object.Spec.Template.ConfigMapRef != nil && wants.Invalid == "",
		"draining":           result.Counts.Draining > 0, "released": slices.ContainsFunc(result.Taints, func(t rollout.Taint) bool { return t.Drain == rollout.Drain{} }),
		"evicted":       len(result.Evict) > 0,
		"may not drain": strings.Contains(wants.Invalid, "kubectl apply -k config/drain"),
		"invalid spec":  d.invalid == 1, "invalid selector": d.invalid == 2,
		"invalid with nodes": wants.Invalid != "" && len(nodes) > 0, "new leader": len(wants.Outages) > 0,
		"gates": len(wants.Spec.Strategy.Gates) > 0, "unknown server": strings.Contains(wants.Invalid, "no Prometheus server"),
		"late": result.Counts.Stale > 0 || result.Counts.Failed > 0, "conflicted": result.Counts.Conflicted > 0,
		"maintenance by flag": slices.ContainsFunc(nodes, func(n rollout.Node) bool { return n.Maintenance == "condition example.com/Repair" }),
	} {
		seen[what] += map[bool]int{true: 1}[is] // 0 as well: the case is known then
	}
}

// drawnFleet is objects of the API that are drawn. The rollout that is planned
// has the name "r".
type drawnFleet struct {
	*rapid.T
	now      time.Time
	settings v1alpha1.RolloutController

	rollouts   []v1alpha1.NodeConfigRollout
	revisions  []*corev1.ConfigMap // of "r", by content
	configMaps []*corev1.ConfigMap // all that exist
	nodes      []*corev1.Node
	configs    []*v1alpha1.NodeConfig

	source  *corev1.ConfigMap // that the template of "r" names; nil: there is none
	invalid int               // what is wrong with the spec of "r": 1 an amount, 2 the selector
	since   time.Time         // since when the leader has its Lease; zero: it has none
}

func (d *drawnFleet) chance(one int, what string) bool {
	return rapid.IntRange(1, one).Draw(d.T, what) == 1
}

func (d *drawnFleet) number(from, to int, what string) int {
	return rapid.IntRange(from, to).Draw(d.T, what)
}

// ago is a whole number of seconds before now, up to half an hour.
func (d *drawnFleet) ago(what string) metav1.Time {
	return metav1.NewTime(d.now.Add(-time.Duration(rapid.SampledFrom([]int{1, 10, 40, 120, 500, 1800}).Draw(d.T, what)) * time.Second))
}

func (d *drawnFleet) draw() {
	d.drawRevisions()
	for _, name := range []string{"r", "s", "u"}[:d.number(1, 3, "rollouts")] {
		o := v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("rollout-" + name), Generation: 2, CreationTimestamp: metav1.NewTime(d.now.Add(-24 * time.Hour)),
		}}
		d.drawSpec(&o)
		if name == "r" && !d.chance(5, "never seen") {
			d.drawStatus(&o.Status)
		}
		if name != "r" && d.chance(4, "deleting") {
			o.DeletionTimestamp, o.Finalizers = new(metav1.NewTime(d.now)), []string{"example.com/waits"}
		}
		if name != "r" || o.Status.UpdateRevision != nil {
			o.Status.Controller = &d.settings
		}

		d.rollouts = append(d.rollouts, o)
	}

	if len(d.rollouts) == 1 { // what was never published is not known
		d.rollouts[0].Status.Controller = &d.settings
	}

	d.drawInvalid(&d.rollouts[0].Spec)
	if d.rollouts[0].Status.UpdateRevision != nil && d.chance(4, "in the middle of drains") {
		d.drawDrains(&d.rollouts[0])
	}
	if d.chance(3, "lease") {
		d.since = d.ago("acquired").Time
	}

	for i := range d.number(0, 8, "nodes") {
		d.drawNode(fmt.Sprintf("node-%d", i))
	}
}

// drawDrains makes "r" a valid rollout that drains nodes.
func (d *drawnFleet) drawDrains(o *v1alpha1.NodeConfigRollout) {
	s := &o.Spec
	s.AllNodes, s.NodeSelector, s.Template, s.Abort, s.Paused, s.Frozen = true, v1alpha1.Selector{}, contentNumber(int(o.Status.UpdateRevision.Number)-1), nil, false, false
	s.Strategy.Drain, s.Strategy.MaxUnavailable = v1alpha1.DrainAlways, new(intstr.FromInt32(4))
	o.Status.Halt, d.invalid, d.source = nil, 0, nil
}

// drawInvalid draws mistakes in the spec of "r", and a template in a ConfigMap
// that may be missing.
func (d *drawnFleet) drawInvalid(s *v1alpha1.NodeConfigRolloutSpec) {
	if d.chance(3, "template in a ConfigMap") {
		content := assert.Value(fleet.ContentOf(contentNumber(d.number(0, contents-1, "content of the ConfigMap")), nil))(d)
		s.Template = v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: "team", Name: "kubelet"}}
		if !d.chance(2, "missing") {
			d.source = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "kubelet"}, Data: map[string]string{content.Key: string(content.Data)}}
		}
	}

	switch d.invalid = max(0, d.number(-10, 2, "mistake in the spec")); d.invalid {
	case 1:
		s.Strategy.MaxUnavailable = new(intstr.FromString("many"))
	case 2:
		s.AllNodes, s.NodeSelector = false, v1alpha1.Selector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Like"}}}
	}
}

// contents are how many contents the template of "r" has had.
const contents = 4

func contentNumber(i int) v1alpha1.RolloutTemplate {
	return v1alpha1.RolloutTemplate{Kubelet: &runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":%d}`, 100+i)}}
}

func (d *drawnFleet) drawRevisions() {
	for i := range contents {
		content := assert.Value(fleet.ContentOf(contentNumber(i), nil))(d)
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: d.settings.Namespace, Name: fleet.RevisionName("r", content.SHA256), UID: types.UID(fmt.Sprint("content-", i)),
				CreationTimestamp: metav1.NewTime(d.now.Add(-time.Duration(d.number(1, 48, "age")) * time.Hour)),
				Labels:            map[string]string{v1alpha1.LabelRollout: "r", v1alpha1.LabelRevision: strconv.Itoa(i + 1)},
			},
			Immutable: new(true), Data: map[string]string{content.Key: string(content.Data)},
		}
		d.revisions = append(d.revisions, cm)
		stored := cm.DeepCopy()
		switch d.number(0, 11, "what became of it") {
		case 0:
			continue // deleted
		case 1:
			stored.UID += "-anew"
		case 2:
			stored.Data[content.Key] += "# edited\n"
		case 3:
			stored.Immutable = nil
		case 4:
			stored.Labels = nil
		case 5:
			stored.Namespace = "somewhere"
		case 6, 7, 8:
			stored.Annotations = map[string]string{v1alpha1.AnnotationStopped: "TooManyFailures"}
		}

		d.configMaps = append(d.configMaps, stored)
		if d.chance(4, "another rollout has it, too") {
			other := cm.DeepCopy()
			other.Name, other.UID = fleet.RevisionName("other", content.SHA256), cm.UID+"-other"
			other.Labels[v1alpha1.LabelRollout] = "other"
			if d.chance(2, "stopped there") {
				other.Annotations = map[string]string{v1alpha1.AnnotationStopped: "Aborted"}
			}

			d.configMaps = append(d.configMaps, other)
		}
	}
}

func (d *drawnFleet) revision(i int) *v1alpha1.RolloutRevision {
	return &v1alpha1.RolloutRevision{Number: int64(i + 1), ConfigMapRef: d.reference(i)}
}

func (d *drawnFleet) reference(i int) v1alpha1.ConfigMapReference {
	cm := d.revisions[i]
	return v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: fleet.PayloadDigest(cm)}
}

func (d *drawnFleet) drawSpec(o *v1alpha1.NodeConfigRollout) {
	s := &o.Spec
	if s.Priority = int32(d.number(0, 1, "priority")); d.chance(2, "all nodes") {
		s.AllNodes = true
	} else {
		s.NodeSelector.MatchLabels = map[string]string{"pool": rapid.SampledFrom([]string{"a", "b"}).Draw(d.T, "pool")}
	}

	if s.Template = contentNumber(d.number(0, contents-1, "content")); d.chance(8, "unusable") {
		s.Template.Kubelet.Raw = []byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":"many"}`)
	}
	if d.chance(3, "canaries") {
		s.Strategy.CanarySelector = map[string]string{"canary": "yes"}
	}
	if d.chance(3, "domains") {
		s.Strategy.TopologyKey, s.Strategy.MaxDomainsInFlight = "zone", new(int32(1))
	}

	s.Strategy.MaxUnavailable = new(intstr.FromInt32(int32(d.number(1, 4, "budget"))))
	s.FailurePolicy.MaxFailures = new(intstr.FromInt32(int32(d.number(1, 3, "failures"))))
	if d.chance(3, "rollback") {
		s.FailurePolicy.Action = v1alpha1.FailureActionRollback
	}

	if d.chance(3, "gate") {
		s.Strategy.Gates = []v1alpha1.RolloutGate{{
			Name: "errors", Prometheus: v1alpha1.PrometheusGate{Server: rapid.SampledFrom([]string{"main", "other"}).Draw(d.T, "server"), Query: "up", Passes: "< 1"},
			Every: rapid.SampledFrom([]v1alpha1.GateEvery{v1alpha1.GateEveryStep, v1alpha1.GateAlways}).Draw(d.T, "every"), Failures: 2,
		}}
	}

	s.Strategy.Drain = rapid.SampledFrom([]v1alpha1.DrainMode{"", v1alpha1.DrainNever, v1alpha1.DrainWhenBlocked, v1alpha1.DrainAlways, v1alpha1.DrainAlways}).Draw(d.T, "drain")
	s.Paused, s.Frozen = d.chance(8, "paused"), d.chance(8, "frozen")
	if d.chance(5, "aborted") {
		s.Abort = &v1alpha1.RolloutAbort{Revision: int64(d.number(1, contents, "which")), Rollback: d.chance(2, "rollback")}
	}
}

func (d *drawnFleet) drawStatus(st *v1alpha1.NodeConfigRolloutStatus) {
	target := d.number(0, contents-1, "target")
	st.ObservedGeneration, st.Phase, st.UpdateRevision, st.Attempt = 1, v1alpha1.RolloutProgressing, d.revision(target), 1
	st.StartTime, st.AttemptTime, st.StepTime, st.ProgressTime = new(d.ago("start")), new(d.ago("attempt")), new(d.ago("step")), new(d.ago("progress"))
	if d.chance(3, "gate was evaluated") {
		st.Gates = []v1alpha1.GateStatus{{
			Name: "errors", Time: new(d.ago("evaluated")), Failures: int32(d.number(0, 1, "failed evaluations")),
			State: rapid.SampledFrom([]v1alpha1.GateState{v1alpha1.GatePassing, v1alpha1.GateFailing, v1alpha1.GateEmpty, v1alpha1.GateError}).Draw(d.T, "state"),
		}}
	}

	if d.chance(2, "current") {
		st.CurrentRevision = d.revision(d.number(0, target, "current"))
	}

	if d.chance(4, "halted") {
		st.Halt = &v1alpha1.RolloutHalt{Attempt: 1, Time: d.ago("halt"), Rollback: d.chance(2, "rollback"),
			Reason: rapid.SampledFrom([]string{v1alpha1.HaltTooManyFailures, v1alpha1.HaltInconclusive, v1alpha1.HaltAborted}).Draw(d.T, "reason")}
	}

	for i := range slices.Backward(d.revisions[:target]) {
		reason := rapid.SampledFrom([]string{v1alpha1.HaltTooManyFailures, v1alpha1.HaltInconclusive}).Draw(d.T, "reason")
		h := v1alpha1.RolloutOutcome{Revision: int64(i + 1), ConfigMap: d.revisions[i].Name, UID: d.revisions[i].UID, SHA256: fleet.PayloadDigest(d.revisions[i]),
			Outcome: rapid.SampledFrom([]string{"Succeeded", "Halted", "RolledBack", "Superseded"}).Draw(d.T, "outcome"), Reason: reason}
		st.History = append(st.History, h)
	}
}

func (d *drawnFleet) drawNode(name string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(d.now.Add(-time.Duration(d.number(0, 48, "age")) * time.Hour))}}
	node.Labels = map[string]string{
		"pool": rapid.SampledFrom([]string{"a", "b", "c"}).Draw(d.T, "pool"), "zone": rapid.SampledFrom([]string{"1", "2"}).Draw(d.T, "zone"),
		"canary": rapid.SampledFrom([]string{"yes", "no"}).Draw(d.T, "canary"),
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: d.ago("ready")}
	if d.chance(4, "down") { // the controller dates False by when it saw that, which nobody else knows
		ready.Status = corev1.ConditionUnknown
	}

	node.Status.Conditions = []corev1.NodeCondition{ready}
	if target := d.rollouts[0].Status.UpdateRevision; target != nil && d.chance(3, "drained") {
		since := d.ago("drained")
		node.Spec.Taints = []corev1.Taint{fleet.DrainTaint(rollout.Drain{
			Rollout: fleet.DrainID(types.UID("rollout-" + rapid.SampledFrom([]string{"r", "r", "r", "s"}).Draw(d.T, "drained by"))), Revision: target.Number, Attempt: 1, Since: since.Time,
		})}
		st := &d.rollouts[0].Status
		st.DrainingNodes = append(st.DrainingNodes, v1alpha1.DrainingNode{Name: name, Since: since, Message: "2 pods to evict"})
	}

	switch d.number(0, 8, "maintenance") {
	case 0:
		node.Spec.Unschedulable = true
	case 1:
		node.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}}
	case 2: // only with the flag
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: "example.com/Repair", Status: corev1.ConditionTrue})
	}

	d.nodes = append(d.nodes, node)
	if d.chance(8, "no NodeConfig") {
		return
	}

	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("config-" + name), Generation: int64(d.number(1, 3, "generation"))}}
	d.configs = append(d.configs, nc)
	given := d.number(0, contents-1, "given")
	ref := d.reference(given)
	switch d.number(0, 5, "source") {
	case 0:
	case 1:
		nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{ConfigMapRef: &ref} // a person's
	default:
		by := rapid.SampledFrom([]string{"r", "r", "r", "s"}).Draw(d.T, "by")
		assigned := &v1alpha1.RolloutReference{Name: by, Revision: int64(given + 1), Attempt: 1, AssignedAt: d.ago("assigned")}
		if before := d.number(0, contents-1, "before"); before != given {
			assigned.Previous = &v1alpha1.PreviousSource{ConfigMapRef: d.reference(before), Rollout: by, Revision: int64(before + 1), Attempt: 1}
		}

		nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{ConfigMapRef: &ref, RolloutRef: assigned}
	}

	if d.chance(6, "no agent") {
		return
	}

	st := &nc.Status
	st.AgentVersion, st.ObservedGeneration = "v1", nc.Generation
	if d.chance(3, "silent") {
		st.ObservedGeneration--
	}

	active := d.number(-1, contents-1, "active")
	if active >= 0 {
		st.Active = &v1alpha1.ConfigRevision{UID: d.reference(active).UID, SHA256: d.reference(active).SHA256}
	}
	if good := d.number(-1, contents-1, "last-known-good"); good >= 0 {
		st.LastKnownGood = &v1alpha1.LastKnownGoodConfig{ConfigRevision: v1alpha1.ConfigRevision{UID: d.reference(good).UID, SHA256: d.reference(good).SHA256}}
	}
	if d.chance(4, "trial") {
		st.Trial = &v1alpha1.Trial{DurationSeconds: 60}
	}

	ok := metav1.Condition{Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllChecksPassed}
	if d.chance(3, "bad") {
		ok.Status, ok.Reason = metav1.ConditionFalse, v1alpha1.ReasonCrashLooped
		st.BadConfigs = []v1alpha1.BadConfig{{UID: ref.UID}}
	}

	st.Conditions = []metav1.Condition{ok}
}

// api is an API server with the objects that were drawn. It lists in the order
// of names.
func (d *drawnFleet) api() client.WithWatch {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme} {
		assert.NoError(d, add(scheme))
	}

	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(copies(d.configMaps)...)
	b.WithObjects(copies(d.nodes)...).WithObjects(copies(d.configs)...)
	for i := range d.rollouts {
		b.WithObjects(d.rollouts[i].DeepCopy())
	}
	if d.source != nil {
		b.WithObjects(d.source.DeepCopy())
	}
	if !d.since.IsZero() {
		b.WithObjects(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.settings.Namespace, Name: v1alpha1.ControllerLease},
			Spec:       coordinationv1.LeaseSpec{AcquireTime: new(metav1.NewMicroTime(d.since))},
		})
	}

	return b.WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			err := c.List(ctx, list, o...)
			switch l := list.(type) {
			case *corev1.NodeList:
				slices.SortFunc(l.Items, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
			case *v1alpha1.NodeConfigList:
				slices.SortFunc(l.Items, func(a, b v1alpha1.NodeConfig) int { return cmp.Compare(a.Name, b.Name) })
			}

			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			o.SetUID("made-by-the-controller")
			return c.Create(ctx, o, options...)
		},
	}).Build()
}

func copies[T client.Object](all []T) (out []client.Object) {
	for _, o := range all {
		out = append(out, o.DeepCopyObject().(client.Object))
	}

	return out
}

// controller is one that has seen all that was drawn.
func (d *drawnFleet) controller(api client.WithWatch, now time.Time) *Controller {
	c := &Controller{
		settings: d.settings, writers: 1, client: api, fleet: newCache("", time.Second), recorder: events.NewFakeRecorder(100),
		log: slog.New(slog.DiscardHandler),
	}
	c.fleet.now, c.fleet.maintenance, c.fleet.agent = func() time.Time { return now }, d.settings.Maintenance, time.Minute
	if !d.since.IsZero() {
		c.fleet.outages = rollout.Outages{{From: d.since, To: d.since}}
	}

	none := c.newProblems("", "", nil)
	c.metrics = assert.Value(newMeters(prometheus.NewRegistry(), "v1", "", newCollector(c.fleet, 0, none, none)))(d)
	c.sources = newTemplateSources(api, func() {})
	if d.source != nil {
		d.read(api, d.source)
	}

	c.sources.all[types.NamespacedName{Namespace: "team", Name: "kubelet"}] = &templateSource{read: true, object: d.source}
	for i := range d.rollouts {
		c.fleet.setRollout(d.read(api, &v1alpha1.NodeConfigRollout{ObjectMeta: d.rollouts[i].ObjectMeta}).(*v1alpha1.NodeConfigRollout))
	}

	revisions := &corev1.ConfigMapList{}
	assert.NoError(d, api.List(d.Context(), revisions, client.InNamespace(d.settings.Namespace), client.HasLabels{v1alpha1.LabelRollout}))
	for i := range revisions.Items {
		c.fleet.setRevision(&revisions.Items[i])
	}

	for _, n := range d.nodes {
		c.fleet.setNode(n)
	}

	for _, nc := range d.configs {
		c.fleet.setConfig(nc)
	}

	return c
}

// read reads an object as it is stored.
func (d *drawnFleet) read(api client.Reader, o client.Object) client.Object {
	assert.NoError(d, api.Get(d.Context(), client.ObjectKeyFromObject(o), o))
	return o
}
