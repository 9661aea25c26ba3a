// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/hollow"
)

// scenario is a pool of hollow nodes, NAME-0 and so on, all with the label
// pool=NAME. Its methods fail the test.
type scenario struct {
	t     *testing.T
	name  string
	fleet *hollow.Fleet
}

// play makes a pool. It goes with the test, and so do the rollouts that the
// scenario makes.
func play(t *testing.T, name string, nodes int, with ...func(*hollow.Options)) *scenario {
	t.Helper()
	o := hollow.Options{
		Config: cluster.AdminConfig(), Nodes: nodes, Prefix: name + "-", Labels: map[string]string{"pool": name},
		Limits:          trial.Limits{TrialDuration: time.Second, CrashLoopThreshold: 1},
		UnansweredLimit: time.Second, // the controllers of these tests wait for an agent for 2s or more
	}
	for _, f := range with {
		f(&o)
	}

	// Not t.Context(): the agents are stopped after the rollouts are gone.
	fleet := assert.Value(hollow.Start(context.WithoutCancel(t.Context()), o))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		assert.OK(t, errors.Join(fleet.Stop(), fleet.Cleanup(ctx)))
	})

	return &scenario{t: t, name: name, fleet: fleet}
}

// faulty nodes have these faults, in the words that evenkeel-hollow's --fault
// takes.
func faulty(faults ...string) func(*hollow.Options) {
	return func(o *hollow.Options) {
		for _, text := range faults {
			f, err := hollow.ParseFault(text)
			if err != nil {
				panic(err)
			}

			o.Faults = append(o.Faults, f)
		}
	}
}

// node is the name of the node with this number.
func (s *scenario) node(i int) string { return fmt.Sprintf("%s-%d", s.name, i) }

// do fails the test with an error.
func (s *scenario) do(err error) {
	s.t.Helper()
	assert.NoError(s.t, err)
}

// until polls until something is so.
func (s *scenario) until(what string, so func() (is string, ok bool)) {
	s.t.Helper()
	if err := bed.Eventually(s.t.Context(), within, func(context.Context) error {
		is, ok := so()
		return assert.Unless(ok, "it is: %s", is)
	}); err != nil {
		s.t.Fatalf("%s: %v\n%s", what, err, s.table())
	}
}

// nodeConfigs are those of the scenario's nodes, by name.
func (s *scenario) nodeConfigs() map[string]*v1alpha1.NodeConfig {
	s.t.Helper()
	list := &v1alpha1.NodeConfigList{}
	s.do(kube.List(s.t.Context(), list))
	out := map[string]*v1alpha1.NodeConfig{}
	for i := range list.Items {
		if nc := &list.Items[i]; s.owns(nc.Name) {
			out[nc.Name] = nc
		}
	}

	return out
}

func (s *scenario) nodeConfig(node string) *v1alpha1.NodeConfig {
	s.t.Helper()
	nc := &v1alpha1.NodeConfig{}
	s.do(kube.Get(s.t.Context(), types.NamespacedName{Name: node}, nc))
	return nc
}

// those returns the nodes of which something is true for a ConfigMap now,
// sorted: gives or runs.
func (s *scenario) those(what func(*v1alpha1.NodeConfig, types.UID) bool, ref v1alpha1.ConfigMapReference) []string {
	s.t.Helper()
	all := s.nodeConfigs()
	maps.DeleteFunc(all, func(_ string, nc *v1alpha1.NodeConfig) bool { return !what(nc, ref.UID) })
	return slices.Sorted(maps.Keys(all))
}

// same compares sorted lists of nodes.
func (s *scenario) same(what string, got, want []string) {
	s.t.Helper()
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: %v, want %v\n%s", what, got, want, s.table())
	}
}

// table shows the nodes, for a test that has failed.
func (s *scenario) table() string {
	list, configs := &corev1.NodeList{}, &v1alpha1.NodeConfigList{}
	ctx := context.WithoutCancel(s.t.Context())
	err := errors.Join(kube.List(ctx, list, client.MatchingLabels{"pool": s.name}), kube.List(ctx, configs))
	configs.Items = slices.DeleteFunc(configs.Items, func(nc v1alpha1.NodeConfig) bool { return !s.owns(nc.Name) })
	text, _ := json.Marshal([]any{list, configs}) // objects of the API can be encoded

	return fmt.Sprintf("%s %v", text, err)
}

// rollout is the rollout of a scenario, with the same name.
type rollout struct{ *scenario }

// template is a whole configuration with these fields.
func (s *scenario) template(fields string) v1alpha1.RolloutTemplate {
	s.t.Helper()
	data, err := yaml.YAMLToJSON([]byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields + "\n"))
	s.do(err)
	return v1alpha1.RolloutTemplate{Kubelet: &runtime.RawExtension{Raw: data}}
}

// roll makes the rollout of the scenario's name: a configuration with these
// fields for its pool, and the rest of the spec as YAML.
func (s *scenario) roll(fields, spec string) *rollout {
	s.t.Helper()
	o := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	s.do(yaml.UnmarshalStrict([]byte(spec), &o.Spec))
	o.Spec.Template = s.template(fields)
	o.Spec.NodeSelector.MatchLabels = map[string]string{"pool": s.name}
	s.do(kube.Create(s.t.Context(), o))
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		err := client.IgnoreNotFound(kube.Delete(ctx, o))
		// Another rollout of that name would go on counting where this one's
		// revisions ended.
		of := client.MatchingLabels{v1alpha1.LabelRollout: s.name}
		assert.OK(s.t, errors.Join(err, kube.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(v1alpha1.SystemNamespace), of)))
	})

	return &rollout{s}
}

// edit changes the spec.
func (r *rollout) edit(change func(*v1alpha1.NodeConfigRolloutSpec)) {
	r.t.Helper()
	often := wait.Backoff{Steps: 1000, Duration: 10 * time.Millisecond}
	r.do(retry.RetryOnConflict(often, func() error {
		o := r.object()
		change(&o.Spec)
		return kube.Update(r.t.Context(), o)
	}))
}

// push changes the configuration.
func (r *rollout) push(fields string) {
	r.t.Helper()
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Template = r.template(fields) })
}

// approve lets a revision pass a step, and all before it.
func (r *rollout) approve(revision int64, step int32) {
	r.t.Helper()
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) {
		s.Approval = &v1alpha1.RolloutApproval{Revision: revision, Step: step}
	})
}

func (r *rollout) object() *v1alpha1.NodeConfigRollout {
	r.t.Helper()
	o := &v1alpha1.NodeConfigRollout{}
	r.do(kube.Get(r.t.Context(), types.NamespacedName{Name: r.name}, o))
	return o
}

type status = v1alpha1.NodeConfigRolloutStatus

// check compares a status with an expectation: nil, or an error with the actual
// value.
type check func(*status) error

// at wants a revision in a phase.
func at(revision int64, phase v1alpha1.RolloutPhase) check {
	return func(st *status) error {
		return assert.Unless(st.UpdateRevision != nil && st.UpdateRevision.Number == revision && st.Phase == phase,
			"revision %d is not %s", revision, phase)
	}
}

// that wants something to be so.
func that(what string, so func(*status) bool) check {
	return func(st *status) error { return assert.Unless(so(st), "not: %s", what) }
}

// updated requires this number of updated nodes.
func updated(n int32) check {
	return that(fmt.Sprintf("updated nodes: %d", n), func(st *status) bool { return st.Nodes.Updated == n })
}

// await waits until the status answers the spec and passes the checks, and
// returns it.
func (r *rollout) await(checks ...check) (st *v1alpha1.NodeConfigRolloutStatus) {
	r.t.Helper()
	if err := bed.Eventually(r.t.Context(), within, func(context.Context) error {
		o := r.object()
		st = &o.Status
		if st.ObservedGeneration != o.Generation {
			return fmt.Errorf("it answers generation %d, not %d", st.ObservedGeneration, o.Generation)
		}

		for _, c := range checks {
			if err := c(st); err != nil {
				return err
			}
		}

		return nil
	}); err != nil {
		r.t.Fatalf("%v\n%s", err, r.dump(st))
	}

	return st
}

// complete waits until a revision is complete, and returns its ConfigMap.
func (r *rollout) complete(revision int64) v1alpha1.ConfigMapReference {
	r.t.Helper()
	return r.await(at(revision, v1alpha1.RolloutComplete)).UpdateRevision.ConfigMapRef
}

// dump shows all there is about a rollout, for a test that has failed.
func (r *rollout) dump(st *v1alpha1.NodeConfigRolloutStatus) string {
	text, err := yaml.Marshal(st)
	if err != nil {
		return err.Error()
	}

	return fmt.Sprintf("%s\n%s\nthe controller says:\n%s", text, r.table(), shared.said(r.name))
}

// looked returns when the controller has planned with the present objects and
// has carried out that plan: it has answered two harmless edits, and the answer
// to the second one follows the moves of the first plan.
func (r *rollout) looked() *v1alpha1.NodeConfigRolloutStatus {
	r.t.Helper()
	var st *v1alpha1.NodeConfigRolloutStatus
	for range 2 {
		r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { *s.RevisionHistoryLimit = 20 + (*s.RevisionHistoryLimit+1)%2 })
		st = r.await()
	}

	return st
}

// degraded is the reason of the condition Degraded, and its message; both empty
// unless it is True.
func degraded(st *status) (reason, message string) {
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionDegraded); c != nil && c.Status == metav1.ConditionTrue {
		return c.Reason, c.Message
	}

	return "", ""
}

// plugin runs `kubectl evenkeel`, which must exit with code, and returns what
// it prints.
func (s *scenario) plugin(code int, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), root+"/bin/kubectl-evenkeel", args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.AdminKubeconfig())
	out, err := cmd.CombinedOutput()
	assert.Must(s.t, err == nil || errors.As(err, new(*exec.ExitError)), "%v", err)
	got := cmd.ProcessState.ExitCode()
	assert.That(s.t, got == code, "%q: exit code %d, want %d: %s", args, got, code, out)

	return string(out)
}
