package fleet_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/hollow"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// removeConfigMap deletes a ConfigMap of evenkeel-system.
func (s *scenario) removeConfigMap(name string) {
	s.t.Helper()
	s.do(kube.Delete(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}}))
}

// starts counts the starts of kubelets.
type starts struct{ n atomic.Int64 }

// Write implements io.Writer for the agents' log.
func (s *starts) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(`msg="kubelet started"`)) {
		s.n.Add(1)
	}
	return len(line), nil
}

func counting(c *starts) func(*hollow.Options) {
	return func(o *hollow.Options) { o.AgentLog = slog.New(slog.NewTextHandler(c, nil)) }
}

func TestADeletedRevisionIsRecreated(t *testing.T) {
	t.Parallel()
	started := &starts{}
	s := play(t, "remade", 3, counting(started))
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}`)
	was := r.complete(1)
	before := started.n.Load()
	assert.That(t, before == 6, "%d starts of 3 kubelets, by 1 change", before)
	s.removeConfigMap(was.Name)
	st := r.await(at(1, v1alpha1.RolloutComplete), that("it is created again", func(st *status) bool {
		return st.UpdateRevision.ConfigMapRef.UID != was.UID
	}))
	is := st.UpdateRevision.ConfigMapRef
	assert.That(t, is.Name == was.Name && is.SHA256 == was.SHA256 && st.CurrentRevision.ConfigMapRef == is,
		"it is %+v, was %+v, the current one is %+v", is, was, st.CurrentRevision)
	s.until("every node runs the new one", func() (string, bool) {
		on := s.running(is)
		return fmt.Sprint(on), len(on) == 3
	})
	s.same("have the new one as last-known-good", s.those(func(nc *v1alpha1.NodeConfig) bool {
		return nc.Status.Trial == nil && nc.Status.LastKnownGood != nil && nc.Status.LastKnownGood.UID == is.UID
	}), s.nodes(0, 3))
	after := started.n.Load()
	assert.That(t, after == before, "%d kubelets were restarted", after-before)
	st = r.looked()
	assert.That(t, st.Phase == v1alpha1.RolloutComplete && len(st.History) == 1, "the status says %+v", st)
}

func TestAMissingOlderRevisionIsReported(t *testing.T) {
	t.Parallel()
	s := play(t, "gone", 3)
	r, first, second := s.rollWithPausedUpdate()
	s.removeConfigMap(first.Name)
	r.told("RevisionGone", "ConfigMap evenkeel-system/"+first.Name+" of revision 1 is gone")
	r.await(that("it is Degraded for that", func(st *status) bool {
		x := condition(st, v1alpha1.ConditionDegraded)
		return x.Status == "True" && x.Reason == "RevisionGone" && strings.Contains(x.Message, first.Name)
	}))
	canary := s.given(second)
	before := s.nodeConfigs()

	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Abort = &v1alpha1.RolloutAbort{Revision: 2, Rollback: true}
	})
	st := r.await(at(2, v1alpha1.RolloutHalted))
	want := "cannot roll back: ConfigMap evenkeel-system/" + first.Name + " of revision 1 is gone"
	assert.That(t, strings.Contains(st.Message, want), "it says %q, not %q", st.Message, want)
	r.looked()
	s.same("have the second revision", s.given(second), canary)
	for name, was := range before {
		is := s.nodeConfig(name)
		assert.That(t, is.Generation == was.Generation, "%s was written to: %+v", name, is.Spec)
	}
	out := s.plugin(1, "rollout", "undo", r.as, "--to-revision=1")
	assert.That(t, strings.Contains(out, "revision 1") && strings.Contains(out, "gone"), "undo says: %s", out)
	// Nodes keep their configuration, and a new revision starts from it.
	r.push("maxPods: 103")
	r.await(at(3, v1alpha1.RolloutAwaitingApproval))
	r.approve(3, 1)
	s.same("run the third revision", s.running(r.complete(3)), s.nodes(0, 3))
}
