// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// workload puts pods on a node that a ReplicaSet controls, unless they are bare. They end at once when they are evicted, unless
// grace is more than 0 seconds: then they stay.
func (s *scenario) workload(node string, n int, bare bool, grace int64) {
	s.t.Helper()
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s-web-%d-%d", node, i, time.Now().UnixNano())},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}, TerminationGracePeriodSeconds: &grace},
		}
		if !bare {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: new(true)}}
		}
		s.do(kube.Create(s.t.Context(), pod))
		s.t.Cleanup(func() {
			assert.OK(s.t, client.IgnoreNotFound(kube.Delete(context.Background(), pod, client.GracePeriodSeconds(0))))
		})
	}
}

// tainted returns the scenario's nodes that a rollout drains.
func (s *scenario) tainted() []string {
	s.t.Helper()
	list := &corev1.NodeList{}
	s.do(kube.List(s.t.Context(), list, client.MatchingLabels{"pool": s.name}))
	var names []string
	for _, n := range list.Items {
		for _, t := range n.Spec.Taints {
			if t.Key == v1alpha1.TaintDraining {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

// noTaint waits until no node is drained any more.
func (s *scenario) noTaint() {
	s.t.Helper()
	s.until("no node has the taint of a drain", func() (string, bool) {
		names := s.tainted()
		return strings.Join(names, ", "), len(names) == 0
	})
}

// watchTaints fails the test if a node has the taint while the rollout's status does not say so. It returns a function that ends
// the watch and returns how often it saw a taint.
func (r *rollout) watchTaints() (end func() int) {
	ctx, cancel := context.WithCancel(r.t.Context())
	seen, done := 0, make(chan struct{})
	listed := func(name string) bool {
		o := &v1alpha1.NodeConfigRollout{}
		if kube.Get(ctx, types.NamespacedName{Name: r.as}, o) != nil {
			return true // the end of the test
		}
		for _, d := range o.Status.DrainingNodes {
			if d.Name == name {
				return true
			}
		}
		return false
	}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, name := range r.tainted() {
				seen++
				still := &corev1.Node{}
				assert.That(r.t, listed(name) || kube.Get(ctx, types.NamespacedName{Name: name}, still) != nil || !isTainted(still) || listed(name),
					"node %s has the taint, and the rollout's status does not say so", name)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return func() int { cancel(); <-done; return seen }
}

func isTainted(n *corev1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == v1alpha1.TaintDraining {
			return true
		}
	}
	return false
}

// mayDrain lets the controller drain nodes until the test ends.
func (s *scenario) mayDrain() {
	s.t.Helper()
	s.do(cluster.Apply(s.t.Context(), filepath.Join(root, "config/drain")))
	s.cleanUp(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "evenkeel-controller-drain"}})
}

func TestARolloutThatDrains(t *testing.T) { // not parallel: it stops the shared controller
	s := play(t, "drain", 4)
	alone(t)
	p := s.controller("--leader-elect=false")
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 2, steps: [{nodes: 100%}], drain: Always}`)
	r.invalid("spec.strategy.drain is Always, but the controller may not evict pods or patch Nodes: grant it with kubectl apply -k config/drain")
	may := r.object().Status.Controller.Drain
	assert.That(t, may != nil && !*may, "it publishes that it may drain: %v", may)
	s.do(p.stop())

	s.mayDrain()
	s.workload(s.node(0), 3, false, 0)
	s.workload(s.node(1), 1, true, 0)
	s.workload(s.node(2), 1, false, 0)
	s.workload(s.node(2), 1, true, 0)
	p = s.controller("--leader-elect=false")
	end := r.watchTaints()
	st := r.await(at(1, v1alpha1.RolloutProgressing), updated(2), that("two nodes cannot be drained", func(st *status) bool {
		return st.Nodes.Blocked == 2 && st.Nodes.Failed == 0
	}))
	if words := s.node(1) + " DrainRefused"; !strings.Contains(st.Message, words) || !strings.Contains(st.Message, "drainOptions.unmanagedPods") {
		t.Errorf("the message has no %q: %s", words, st.Message)
	}
	s.noTaint()
	s.same("run the revision", s.running(st.UpdateRevision.ConfigMapRef), []string{s.node(0), s.node(3)})
	left := &corev1.PodList{}
	s.do(kube.List(t.Context(), left, client.MatchingFields{"spec.nodeName": s.node(2)}))
	assert.That(t, len(left.Items) == 2, "a node with a pod that must not be evicted has %d pods, want all 2", len(left.Items))

	// A person allows it, and does not want to wait for the next offer.
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Strategy.DrainOptions = &v1alpha1.DrainOptions{UnmanagedPods: v1alpha1.DrainEvict}
		spec.Retry = &v1alpha1.RolloutRetry{Revision: 1, Attempt: 2}
	})
	r.await(at(1, v1alpha1.RolloutComplete), updated(4))
	s.noTaint()
	assert.That(t, end() != 0, "no node was drained")

	// What ends slowly: the drain is given up after its timeout, and ends with its rollout.
	s.workload(s.node(0), 1, false, 300)
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Template = r.template("maxPods: 102")
		spec.Strategy.DrainOptions.TimeoutSeconds = 10
	})
	r.await(at(2, v1alpha1.RolloutProgressing), updated(3), that("the slow one is given up", func(st *status) bool {
		return st.Nodes.Blocked == 1 && strings.Contains(st.Message, s.node(0)+" DrainTimeout")
	}))
	s.noTaint()
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Strategy.DrainOptions.TimeoutSeconds = 3600
		spec.Retry = &v1alpha1.RolloutRetry{Revision: 2, Attempt: 2}
	})
	s.until("it is drained again", func() (string, bool) { return "", len(s.tainted()) == 1 })
	r.delete()
	s.noTaint()
	s.do(p.stop())
}

func TestAControllerThatIsKilledLeavesNoNodeDraining(t *testing.T) { // not parallel: it stops the shared controller
	const kills, nodes = 15, 8
	s := play(t, "drain-killed", nodes)
	alone(t)
	s.mayDrain()
	for i := range nodes {
		s.workload(s.node(i), 2, false, 0)
	}
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 2, steps: [{nodes: 100%}], drain: Always}`)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	end := r.watchTaints()
	for range kills {
		p, err := spawnController("--leader-elect=false")
		s.do(err)
		time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second)))) // kills it at a random moment
		p.Kill()
	}
	// The API server ends a deletion in two steps. A request that is cut off between them leaves a pod for the kubelet to delete.
	pods := &corev1.PodList{}
	s.do(kube.List(s.t.Context(), pods, client.InNamespace(metav1.NamespaceDefault)))
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp != nil {
			s.do(client.IgnoreNotFound(kube.Delete(s.t.Context(), &pods.Items[i], client.GracePeriodSeconds(0))))
		}
	}
	p := s.controller("--leader-elect=false")
	st := r.await(at(1, v1alpha1.RolloutComplete), updated(nodes))
	s.noTaint()
	assert.That(t, end() != 0 && st.Halt == nil && len(st.DrainingNodes) == 0 && st.Nodes.Draining <= 0, "seed %d: the status says %+v", seed, st)
	if most := s.most(unproven); most > 2 {
		t.Errorf("seed %d: %d nodes were in flight at once, of a budget of 2", seed, most)
	}
	s.do(p.stop())
}
