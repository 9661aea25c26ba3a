// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// Header begins a kubelet's configuration.
const Header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// File writes text to a file and returns its path.
func File(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	assert.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Pods returns a kubelet's configuration, in JSON.
func Pods(n int) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":%d}`, n)}
}

// Add stores an object with its status.
func Add[T client.Object](a *API, o T) T {
	a.t.Helper()
	with := o.DeepCopyObject().(client.Object)
	assert.NoError(a.t, a.seed.Create(context.Background(), o))
	switch any(o).(type) { // a real API server ignores the status of a new object
	case *v1alpha1.NodeConfig, *v1alpha1.NodeConfigRollout, *corev1.Node, *corev1.Pod:
		with.SetResourceVersion(o.GetResourceVersion())
		a.Report(with)
		a.Read(o)
	}

	return o
}

// Report writes the status of an object.
func (a *API) Report(o client.Object) {
	a.t.Helper()
	assert.NoError(a.t, a.Status().Update(context.Background(), o))
}

// Write writes an object, but not its status.
func (a *API) Write(o client.Object) {
	a.t.Helper()
	assert.NoError(a.t, a.Update(context.Background(), o))
}

// Read reads an object again.
func (a *API) Read(o client.Object) {
	a.t.Helper()
	assert.NoError(a.t, a.Get(context.Background(), client.ObjectKeyFromObject(o), o))
}

// AddNode adds a Ready Node of a pool.
func (a *API) AddNode(name, pool, zone string) *corev1.Node {
	a.t.Helper()
	return a.AddNodeOf(0, name, pool, zone)
}

// AddNodeOf adds a Ready Node of this age.
func (a *API) AddNodeOf(age time.Duration, name, pool, zone string) *corev1.Node {
	a.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool, corev1.LabelTopologyZone: zone, corev1.LabelHostname: name}}}
	node.CreationTimestamp = metav1.NewTime(time.Now().Add(-age))
	node.Status.NodeInfo.KubeletVersion = "v1.36.3"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}}

	return Add(a, node)
}

// AddNodeConfig adds a NodeConfig with an up-to-date status whose ConfigOK is
// True.
func (a *API) AddNodeConfig(name string, source *v1alpha1.NodeConfigSource, report func(*v1alpha1.NodeConfigStatus)) *v1alpha1.NodeConfig {
	a.t.Helper()
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeConfigSpec{ConfigSource: source}}
	nc.Status = v1alpha1.NodeConfigStatus{
		ObservedGeneration: 1, RemoteConfig: v1alpha1.RemoteConfigNodeConfig, RunMode: v1alpha1.RunModeHost,
		ComponentVersion: "v1.36.3", AgentVersion: "v0.1.0",
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllChecksPassed,
			Message: "using current: all checks passed", LastTransitionTime: metav1.NewTime(time.Now().Add(-2 * time.Hour)),
		}},
	}
	if report != nil {
		report(&nc.Status)
	}

	return Add(a, nc)
}

// AddAgent adds a Ready Node of a pool, whose agent reports.
func (a *API) AddAgent(name, pool string, source *v1alpha1.NodeConfigSource, report func(*v1alpha1.NodeConfigStatus)) *v1alpha1.NodeConfig {
	a.t.Helper()
	a.AddNode(name, pool, "z1")
	return a.AddNodeConfig(name, source, report)
}

// Proved is the report of a node that runs a ConfigMap after its trial.
func Proved(cm *corev1.ConfigMap) func(*v1alpha1.NodeConfigStatus) {
	return func(st *v1alpha1.NodeConfigStatus) { st.Active, st.LastKnownGood = Runs(cm), Proven(cm) }
}

// Failed is the report of a node whose ConfigOK is False.
func Failed(reason, words string) func(*v1alpha1.NodeConfigStatus) {
	return func(st *v1alpha1.NodeConfigStatus) { Failing(st, reason, words) }
}

// Failing makes ConfigOK False.
func Failing(st *v1alpha1.NodeConfigStatus, reason, words string) {
	st.Conditions[0].Status, st.Conditions[0].Reason, st.Error = metav1.ConditionFalse, reason, words
}

// AddRevision adds the ConfigMap of a rollout's revision.
func (a *API) AddRevision(name string, number int64, config string) *corev1.ConfigMap {
	a.t.Helper()
	return Add(a, revision(name, number, Header+config))
}

// Revision returns the ConfigMap of a rollout's revision with this template.
func Revision(t *testing.T, name string, number int64, template v1alpha1.RolloutTemplate) *corev1.ConfigMap {
	t.Helper()
	content := assert.Value(fleet.ContentOf(template, nil))(t)
	cm := revision(name, number, string(content.Data))
	cm.UID = types.UID(fmt.Sprint("u", number))

	return cm
}

func revision(name string, number int64, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: fleet.RevisionName(name, payload.Digest(payload.KeyKubelet, []byte(data))),
			Labels: map[string]string{v1alpha1.LabelRollout: name, v1alpha1.LabelRevision: fmt.Sprint(number)},
		},
		Immutable: new(true), Data: map[string]string{payload.KeyKubelet: data},
	}
}

// AddRollout adds a rollout for a pool; the template may be nil.
func (a *API) AddRollout(name, pool string, template *runtime.RawExtension, change func(*v1alpha1.NodeConfigRollout)) *v1alpha1.NodeConfigRollout {
	a.t.Helper()
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Spec.NodeSelector = v1alpha1.Selector{MatchLabels: map[string]string{"pool": pool}}
	r.Spec.Template.Kubelet = template
	if change != nil {
		change(r)
	}

	return Add(a, r)
}

// Follow makes a rollout follow a ConfigMap.
func Follow(namespace, name string) v1alpha1.RolloutTemplate {
	return v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: namespace, Name: name}}
}

// AddRolledOut adds a rollout for a pool with the same name, whose target is
// revision 1, and returns the ConfigMap of that.
func (a *API) AddRolledOut(name string, change func(*v1alpha1.NodeConfigRollout)) *corev1.ConfigMap {
	a.t.Helper()
	rev := a.AddRevision(name, 1, "maxPods: 110\n")
	a.AddRollout(name, name, nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = Follow(rev.Namespace, rev.Name)
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: RefTo(rev)}
		begun := metav1.NewTime(time.Now().Add(-10 * time.Minute))
		r.Status.Attempt, r.Status.StartTime, r.Status.StepTime, r.Status.ProgressTime = 1, &begun, &begun, &begun
		if change != nil {
			change(r)
		}
	})

	return rev
}

// SucceededAs returns an entry of a rollout's history for a revision that
// succeeded.
func SucceededAs(number int64, cm *corev1.ConfigMap) v1alpha1.RolloutOutcome {
	return v1alpha1.RolloutOutcome{Revision: number, ConfigMap: cm.Name, UID: cm.UID, SHA256: fleet.PayloadDigest(cm), Outcome: "Succeeded"}
}

// RefTo returns a reference to a ConfigMap.
func RefTo(cm *corev1.ConfigMap) v1alpha1.ConfigMapReference {
	return v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: fleet.PayloadDigest(cm)}
}

// ByRollout returns a source that a rollout assigned 12 minutes ago. previous
// is the source before it, or nil.
func ByRollout(name string, number int64, cm, previous *corev1.ConfigMap) *v1alpha1.NodeConfigSource {
	s := ByPerson(cm)
	s.RolloutRef = &v1alpha1.RolloutReference{Name: name, Revision: number, Attempt: 1, AssignedAt: metav1.NewTime(time.Now().Add(-12*time.Minute - 30*time.Second))}
	if previous != nil {
		s.RolloutRef.Previous = &v1alpha1.PreviousSource{ConfigMapRef: RefTo(previous), Rollout: name, Revision: number - 1, Attempt: 1}
	}

	return s
}

// ByPerson returns a source that a person assigned.
func ByPerson(cm *corev1.ConfigMap) *v1alpha1.NodeConfigSource {
	ref := RefTo(cm)
	return &v1alpha1.NodeConfigSource{ConfigMapRef: &ref}
}

// Runs returns a ConfigMap as a node reports it.
func Runs(cm *corev1.ConfigMap) *v1alpha1.ConfigRevision {
	return &v1alpha1.ConfigRevision{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: fleet.PayloadDigest(cm)}
}

// Proven returns a ConfigMap as a node reports its last-known-good
// configuration.
func Proven(cm *corev1.ConfigMap) *v1alpha1.LastKnownGoodConfig {
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	return &v1alpha1.LastKnownGoodConfig{ConfigRevision: *Runs(cm), Since: &since}
}
