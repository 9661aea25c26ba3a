package fleet_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rehearsal"
)

// removeConfigMap deletes a ConfigMap of evenkeel-system.
func (s *scenario) removeConfigMap(name string) {
	s.t.Helper()
	s.do(kube.Delete(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}}))
}

// putConfigMap makes a ConfigMap in evenkeel-system with a configuration with these fields, or changes it.
func (s *scenario) putConfigMap(name, fields string) {
	s.t.Helper()
	data := map[string]string{"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields + "\n"}
	if cm := s.configMap(name); cm != nil {
		cm.Data = data
		s.do(kube.Update(s.t.Context(), cm))
		return
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}, Data: data}
	s.do(kube.Create(s.t.Context(), cm))
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

func counting(c *starts) func(*rehearsal.Options) {
	return func(o *rehearsal.Options) { o.AgentLog = slog.New(slog.NewTextHandler(c, nil)) }
}

func TestADeletedRevisionIsRecreated(t *testing.T) {
	t.Parallel()
	started := &starts{}
	s := play(t, "remade", 3, counting(started))
	r := s.roll("maxPods: 101", `
strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}
`)
	was := r.complete(1)
	before := started.n.Load()
	if before != 6 {
		t.Errorf("%d starts of 3 kubelets, by 1 change", before)
	}
	s.removeConfigMap(was.Name)
	st := r.await(at(1, v1alpha1.RolloutComplete), that("it is created again", func(st *v1alpha1.NodeConfigRolloutStatus) bool {
		return st.UpdateRevision.ConfigMapRef.UID != was.UID
	}))
	is := st.UpdateRevision.ConfigMapRef
	if is.Name != was.Name || is.SHA256 != was.SHA256 {
		t.Errorf("it is %+v, was %+v", is, was)
	}
	s.until("every node runs the new one", func() (string, bool) {
		on := s.running(is)
		return fmt.Sprint(on), len(on) == 3
	})
	s.same("have the new one as last-known-good", s.those(func(nc *v1alpha1.NodeConfig) bool {
		return nc.Status.Trial == nil && nc.Status.LastKnownGood != nil && nc.Status.LastKnownGood.UID == is.UID
	}), s.nodes(0, 3))
	if after := started.n.Load(); after != before {
		t.Errorf("%d kubelets were restarted", after-before)
	}
	if st = r.looked(); st.Phase != v1alpha1.RolloutComplete || len(st.History) != 1 {
		t.Errorf("the status says %+v", st)
	}
}

func TestAMissingOlderRevisionIsReported(t *testing.T) {
	t.Parallel()
	s := play(t, "gone", 3)
	r, first, second := s.rollWithPausedUpdate()
	s.removeConfigMap(first.Name)
	r.told("RevisionGone", "ConfigMap evenkeel-system/"+first.Name+" of revision 1 is gone")
	r.await(that("it is Degraded for that", func(st *v1alpha1.NodeConfigRolloutStatus) bool {
		x := condition(st, v1alpha1.ConditionDegraded)
		return x.Status == "True" && x.Reason == "RevisionGone" && strings.Contains(x.Message, first.Name)
	}))
	canary := s.given(second)
	before := s.nodeConfigs()

	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Abort = &v1alpha1.RolloutAbort{Revision: 2, Rollback: true}
	})
	st := r.await(at(2, v1alpha1.RolloutHalted))
	if want := "cannot roll back: ConfigMap evenkeel-system/" + first.Name + " of revision 1 is gone"; !strings.Contains(st.Message, want) {
		t.Errorf("it says %q, not %q", st.Message, want)
	}
	r.looked()
	s.same("have the second revision", s.given(second), canary)
	for name, was := range before {
		if is := s.nodeConfig(name); is.Generation != was.Generation {
			t.Errorf("%s was written to: %+v", name, is.Spec)
		}
	}
	if out := s.plugin(1, "rollout", "undo", r.as, "--to-revision=1"); !strings.Contains(out, "revision 1") || !strings.Contains(out, "gone") {
		t.Errorf("undo says: %s", out)
	}
	// Nodes keep their configuration, and a new revision starts from it.
	r.push("maxPods: 103")
	r.await(at(3, v1alpha1.RolloutAwaitingApproval))
	r.approve(3, 1)
	s.same("run the third revision", s.running(r.complete(3)), s.nodes(0, 3))
}

func TestAConfigMapThatATemplateNamesIsFollowed(t *testing.T) {
	t.Parallel()
	s := play(t, "followed", 3)
	s.putConfigMap("followed-template", "maxPods: 101")
	r := s.roll("", `
template: {configMapRef: {namespace: evenkeel-system, name: followed-template}}
strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}
`)
	first := r.complete(1)
	s.putConfigMap("followed-template", "maxPods: 102")
	second := r.complete(2)
	if first.Name == second.Name || first.Name == "followed-template" {
		t.Errorf("the revisions are %+v and %+v", first, second)
	}
	s.same("run the second revision", s.running(second), s.nodes(0, 3))

	before := s.nodeConfigs()
	s.removeConfigMap("followed-template")
	st := r.await(at(2, v1alpha1.RolloutInvalid))
	if want := "spec.template.configMapRef: ConfigMap evenkeel-system/followed-template does not exist: create it, or name another"; !strings.Contains(st.Message, want) {
		t.Errorf("it says %q, not %q", st.Message, want)
	}
	r.looked()
	for name, was := range before {
		if is := s.nodeConfig(name); is.Generation != was.Generation {
			t.Errorf("%s was written to: %+v", name, is.Spec)
		}
	}
	s.putConfigMap("followed-template", "maxPods: 103")
	s.same("run the third revision", s.running(r.complete(3)), s.nodes(0, 3))

	// A content that comes back takes the next number, and its ConfigMap.
	s.putConfigMap("followed-template", "maxPods: 101")
	if again := r.complete(4); again.UID != first.UID {
		t.Errorf("the content of revision 1 is %+v, was %+v", again, first)
	}
	if h := r.await().History; len(h) != 4 || slices.ContainsFunc(h, func(o v1alpha1.RolloutOutcome) bool { return o.Outcome != "Succeeded" }) {
		t.Errorf("the history is %+v", h)
	}
}
