// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/node/podguard/machine"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestRejectedPodsAreAmongThePredictedOnes is the proof of the prediction:
// whatever the random pods, configurations and changes of the Node are, a
// restarted kubelet rejects only pods whose loss was predicted.
func TestRejectedPodsAreAmongThePredictedOnes(t *testing.T) {
	sum := &tally{}
	all := kubelets(t)
	t.Run("with", func(t *testing.T) {
		seed, left := *seedFlag, *pairsFlag
		for i, k := range all {
			count := left / (len(all) - i)
			left -= count
			first := seed
			seed += uint64(count)
			t.Run(k.version, func(t *testing.T) {
				t.Parallel()
				n := newNode(t, k)
				for s := range uint64(count) {
					n.pair(first+s, sum)
				}
			})
		}
	})
	t.Log(sum)
	if sum.pairs == 0 {
		return // skipped
	}

	assert.That(t, sum.pairs < 10 || sum.safe*10 >= sum.pairs*4, "%d of %d pairs are truly safe, want at least 40%%", sum.safe, sum.pairs)
	assert.That(t, sum.safe < 20 || sum.refused*20 <= sum.safe,
		"%d of %d truly safe pairs are refused, want at most 5%%", sum.refused, sum.safe)
}

// tally counts the outcomes of pairs.
type tally struct {
	mu                   sync.Mutex
	pairs, safe, refused int
	unplaced             int // pods that did not run before the restart
}

func (s *tally) String() string {
	return fmt.Sprintf("%d pairs: %d truly safe (%d%%), of which %d refused (%d%%); %d unsafe; pods that did not run before: %d",
		s.pairs, s.safe, s.safe*100/max(1, s.pairs), s.refused, s.refused*100/max(1, s.safe), s.pairs-s.safe, s.unplaced)
}

// pair runs one pair: pods and a change.
func (n *node) pair(seed uint64, sum *tally) {
	n.T.Helper()
	before, after := worldOf(seed-1, n.kubelet.minor), worldOf(seed, n.kubelet.minor)
	n.reach(before)
	pods, unplaced := n.place(seed, before, after)
	n.resize(seed, before)
	n.reports(before)
	n.set(after)
	placed := slices.DeleteFunc(slices.Clone(pods), func(name string) bool { return unplaced[name] })

	running, err := n.configz(n.T.Context())
	assert.NoError(n.T, err)
	planned := assert.Value(with(running, after))(n.T)
	obj := assert.Value(n.Object(n.T.Context()))(n.T)
	all := assert.Value(n.pods(n.T.Context()))(n.T)
	predicted := n.predict(running, planned, obj, all)

	n.restart(after)
	n.world = &after
	lost := n.admitted(placed...)
	n.wants(planned)
	if len(lost) == 0 && len(predicted) > 0 {
		// The kubelet may have admitted the pods with the old allocatable, so
		// try again when the Node has the new one.
		n.reports(after)
		n.restart(after)
		lost = n.admitted(placed...)
	}

	n.T.Logf("seed %d: %d pods, predicted %v, lost %v", seed, len(pods), reasons(predicted), reasons(lost))
	if len(lost) == 0 && len(predicted) > 0 {
		n.T.Logf("seed %d: a truly safe pair was refused\n%s", seed, describe(n, seed, obj, all, running, after, predicted, lost))
	}

	for name := range lost {
		if _, ok := predicted[name]; !ok {
			n.T.Errorf("seed %d: the kubelet rejected %s (%s), which was not predicted\n%s", seed, name, lost[name],
				describe(n, seed, obj, all, running, after, predicted, lost))
		}
	}

	sum.add(predicted, lost, len(unplaced))
	n.remove(pods, lost)
}

func (s *tally) add(predicted, lost map[string]string, unplaced int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pairs++
	s.unplaced += unplaced
	if len(lost) > 0 {
		return
	}

	s.safe++
	if len(predicted) > 0 {
		s.refused++
	}
}

// reasons returns how many pods have each reason. A reason ends at the first
// colon.
func reasons(pods map[string]string) map[string]int {
	out := map[string]int{}
	for _, why := range pods {
		reason, _, _ := strings.Cut(why, ":")
		out[reason]++
	}

	return out
}

// reach brings the node into a world, unless the pair before has left it there.
func (n *node) reach(w world) {
	n.T.Helper()
	if n.world == nil || n.world.seed != w.seed {
		n.restart(w)
		n.world = &w
		n.Eventually("the node is Ready", n.Ready)
		n.set(w)
		n.admitted()
	}
}

// place creates the pods of a seed, one second apart, because the kubelet
// admits them in the order of their creation with a resolution of one second.
// It returns when all of them run, and the names of pods that the kubelet
// rejected at once.
func (n *node) place(seed uint64, before, after world) (names []string, unplaced map[string]bool) {
	n.T.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	capacity := assert.Value(n.Object(n.T.Context()))(n.T).Status.Capacity
	for i, pod := range podsOf(seed, n.Node.Name(), n.kubelet.minor, capacity, before, after) {
		if i > 0 {
			<-tick.C
		}

		name, err := n.create(pod)
		if err != nil {
			n.T.Fatalf("seed %d: %v\n%s", seed, err, asYAML(pod.Spec))
		}

		names = append(names, name)
	}

	n.Eventually("the pods run", func(ctx context.Context) error {
		pods, err := n.pods(ctx)
		if err != nil {
			return err
		}
		if len(pods) < len(names) {
			return fmt.Errorf("%d of %s are in the API", len(pods), printable.Count(len(names), "pod"))
		}

		unplaced = map[string]bool{}
		for _, pod := range pods {
			switch {
			case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded: // preempted
				unplaced[pod.Name] = true
				n.T.Logf("seed %d: %s did not run before the restart: %s: %s", seed, pod.Name, pod.Status.Reason, pod.Status.Message)
			case pod.Status.Phase != corev1.PodRunning:
				return fmt.Errorf("%s is %s: %+v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
			case slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return !s.Ready }):
				return fmt.Errorf("%s is not ready", pod.Name)
			}
		}

		return nil
	})

	return names, unplaced
}

// wants checks that the running kubelet has the configuration for which its
// losses were predicted.
func (n *node) wants(planned component.Effective) {
	n.T.Helper()
	running := assert.Value(n.configz(n.T.Context()))(n.T)
	diff := cmp.Diff(planned, running)
	assert.Must(n.T, diff == "", "the kubelet runs with another configuration than planned (-planned, +running):\n%s", diff)
	// The /configz of a kubelet that has just been started does not differ from
	// the dump of its dry run.
	v := n.dryRunner.CheckLocal(n.T.Context(), "")
	assert.Must(n.T, v.Effective != nil, "the dry run printed no configuration: %s", v.Message)
	fields := component.ConfigzDifferences(v.Effective, running)
	assert.That(n.T, len(fields) == 0, "a fresh kubelet differs from its dry run in %q", fields)
}

// describe returns everything that a prediction depended on, and how to run the
// pair again.
func describe(n *node, seed uint64, obj *corev1.Node, pods []*corev1.Pod, running component.Effective, after world,
	predicted, lost map[string]string,
) string {
	specs := map[string]any{}
	for _, pod := range pods {
		specs[pod.Name] = []any{pod.CreationTimestamp, pod.Status.QOSClass, pod.Spec}
	}

	return asYAML(map[string]any{
		"run it again": fmt.Sprintf("make podguard VERSIONS=%s SEED=%d PAIRS=1", n.kubelet.version, seed),
		"predicted":    predicted, "rejected": lost, "configuration before": running, "after": after.config,
		"node labels": obj.Labels, "taints": obj.Spec.Taints, "capacity": obj.Status.Capacity,
		"allocatable": obj.Status.Allocatable, "pods": specs,
	})
}

func asYAML(v any) string {
	raw, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}

	return string(raw)
}

// predict returns the pods that the prediction names, with reason and message,
// from the same inputs as the agent's. NeedsDrain refuses the whole pair.
func (n *node) predict(running, planned component.Effective, obj *corev1.Node, pods []*corev1.Pod) map[string]string {
	n.T.Helper()
	in := podguard.Input{Minor: n.kubelet.minor, Before: running, After: planned, Node: obj, Pods: pods}
	dir := filepath.Join(n.Node.Dir(), "kubelet")
	assert.NoError(n.T, machine.Machine{KubeletDir: dir}.StateFiles(&in))
	if data, err := os.ReadFile(filepath.Join(dir, "allocated_pods_state")); !errors.Is(err, os.ErrNotExist) {
		assert.NoError(n.T, err)
		in.Allocated = assert.Value(podguard.DecodeAllocated(data))(n.T)
	}

	why := podguard.NeedsDrain(in)
	assert.That(n.T, len(why) == 0, "the random configuration needs a drain: %s", strings.Join(why, "; "))
	predicted := map[string]string{}
	for _, loss := range podguard.Predict(in) {
		predicted[loss.Name] = loss.Reason + ": " + loss.Message
	}

	return predicted
}
