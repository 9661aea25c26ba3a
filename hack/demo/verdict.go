// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// outcome is what was observed in a step.
type outcome struct {
	step    int
	bad     bool          // it tried a bad configuration
	started bool          // the real node's kubelet started for the first time
	stopped bool          // the real node's kubelet was stopped, or ended, and another process replaced it
	crashed bool          // kubelets of simulated nodes did
	ready   bool          // the real node is Ready
	healthy bool          // its kubelet is healthy
	down    time.Duration // from its last good health until it was healthy for good
	lost    int           // pods of the real node, of all
	pods    int
}

// words returns the verdict line.
func (o outcome) words() string {
	kubelet := "not stopped"
	switch {
	case o.started:
		kubelet = "started"
	case o.stopped:
		kubelet = "restarted"
	}

	ready := "Ready"
	if !o.ready {
		ready = "NOT Ready"
	}

	health := "healthy all the time"
	switch {
	case !o.healthy:
		health = fmt.Sprintf("NOT healthy for %.1f s", o.down.Seconds())
	case o.down > 0 && o.started:
		health = fmt.Sprintf("healthy after %.1f s", o.down.Seconds())
	case o.down > 0:
		health = fmt.Sprintf("healthy again after %.1f s", o.down.Seconds())
	}

	return fmt.Sprintf("=> kubelet %s, node %s, %d of %s lost, %s", kubelet, ready, o.lost, printable.Count(o.pods, "pod"), health)
}

// summary returns the summary of all steps in five lines.
func summary(outcomes []outcome, saw, members, lost, pods int) []string {
	bad, stopped, longest := 0, 0, outcome{}
	for _, o := range outcomes {
		if o.bad {
			bad++
			if o.stopped || o.crashed {
				stopped++
			}
		}

		if !o.started && o.down > longest.down {
			longest = o
		}
	}

	last := "no moment without a healthy kubelet on the real node"
	if longest.down > 0 {
		last = fmt.Sprintf("%.1f s was the longest time without a healthy kubelet on the real node, in step %d", longest.down.Seconds(), longest.step)
	}

	return []string{
		printable.Count(bad, "bad configuration") + " tried",
		fmt.Sprintf("%d of them stopped a kubelet, until its node rolled back; %d never reached one", stopped, bad-stopped),
		fmt.Sprintf("%d of %s saw the bad rollout", saw, printable.Count(members, "node")),
		fmt.Sprintf("%d of %s lost", lost, printable.Count(pods, "pod")),
		last,
	}
}

// verdict waits until the real node is well again, and prints what the step has
// done to it. The error says why it is not well.
func (s *show) verdict(ctx context.Context, o outcome, notes ...string) error {
	after := 0
	unwell := bed.Eventually(ctx, patience, func(ctx context.Context) (err error) {
		defer must.Catch(&err)

		o.ready = must.Get(s.ready(ctx))
		after = must.Get(s.agent.KubeletPID())
		o.down, o.healthy = s.pulse.unhealthy(time.Now())
		if !o.healthy {
			return errors.New("the kubelet is not healthy")
		}
		if !o.ready {
			return errors.New("the node is not Ready")
		}

		return nil
	})
	lost, err := s.podsLost(ctx)
	if err != nil {
		unwell = errors.Join(unwell, err)
	}

	o.step, o.started, o.stopped = s.step, s.kubelet == 0, s.kubelet != 0 && s.kubelet != after
	o.lost, o.pods = len(lost), len(s.pods)
	s.kubelet, s.outcomes = after, append(s.outcomes, o)
	say("%s", strings.Join(append([]string{o.words()}, notes...), "; "))
	if len(lost) > 0 {
		unwell = errors.Join(unwell, fmt.Errorf("pods were lost: %s", strings.Join(lost, ", ")))
	}

	return unwell
}

// untouched returns an error if the kubelet was stopped in this step.
func (s *show) untouched() error {
	pid, err := s.agent.KubeletPID()
	if err == nil && pid != s.kubelet {
		err = fmt.Errorf("the kubelet was process %d and is %d", s.kubelet, pid)
	}

	return err
}

// ready reports whether the real node is Ready.
func (s *show) ready(ctx context.Context) (_ bool, err error) {
	defer must.Catch(&err)

	node := must.Get(s.Kube.CoreV1().Nodes().Get(ctx, s.Node.Name(), metav1.GetOptions{}))
	return isReady(node), nil
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// podRecord identifies the running containers of a pod.
type podRecord struct {
	uid        types.UID
	containers string
}

func recordOf(pod *corev1.Pod) podRecord {
	var containers strings.Builder
	for _, c := range pod.Status.ContainerStatuses {
		fmt.Fprintf(&containers, "%s restarted %d times\n", c.ContainerID, c.RestartCount)
	}

	return podRecord{pod.UID, containers.String()}
}

// runPods starts pods on the real node, and records them.
func (s *show) runPods(ctx context.Context, names ...string) (err error) {
	defer must.Catch(&err)

	pods := s.Kube.CoreV1().Pods(metav1.NamespaceDefault)
	s.pods = map[string]podRecord{}
	for _, name := range names {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName: s.Node.Name(), AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "sleep", Image: localcluster.SleepImage}},
		}}
		must.Get(pods.Create(ctx, pod, metav1.CreateOptions{}))
		must.OK(bed.Eventually(ctx, patience, func(ctx context.Context) error {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err == nil && pod.Status.Phase != corev1.PodRunning {
				err = fmt.Errorf("pod %s is %s: %s %s", name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
			}
			if err == nil {
				s.pods[name] = recordOf(pod)
			}

			return err
		}))
	}

	return nil
}

// podsLost returns the pods of runPods that do not run any more, or whose
// containers are not those of runPods.
func (s *show) podsLost(ctx context.Context) (_ []string, err error) {
	defer must.Catch(&err)

	list := must.Get(s.Kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{}))
	return lostOf(s.pods, list.Items), nil
}

// lostOf compares pods with their records, and returns the names of the lost
// ones, each with the reason.
func lostOf(before map[string]podRecord, now []corev1.Pod) []string {
	var lost []string
	for name, was := range before {
		i := slices.IndexFunc(now, func(pod corev1.Pod) bool { return pod.Name == name && pod.UID == was.uid })
		switch {
		case i < 0:
			lost = append(lost, name+" (deleted)")
		case now[i].Status.Phase != corev1.PodRunning:
			lost = append(lost, strings.TrimSpace(fmt.Sprintf("%s (%s %s", name, now[i].Status.Phase, now[i].Status.Reason))+")")
		case recordOf(&now[i]) != was:
			lost = append(lost, name+" (its container restarted)")
		}
	}

	slices.Sort(lost)

	return lost
}
