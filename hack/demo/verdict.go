// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/internal/fleet"
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
func (s *show) verdict(ctx context.Context, o outcome, notes ...string) {
	after := 0
	unwell := must.Try(func() {
		bed.Await(ctx, patience, func(ctx context.Context) {
			o.ready = fleet.IsReady(must.Get(s.Object(ctx)))
			after = must.Get(s.agent.KubeletPID())
			o.down, o.healthy = s.pulse.Without(time.Now())
			must.That(o.healthy, "the kubelet is not healthy")
			must.That(o.ready, "the node is not Ready")
		})
	})
	var lost []string
	unwell = errors.Join(unwell, must.Try(func() { lost = s.podsLost(ctx) }))
	o.step, o.started, o.stopped = s.step, s.kubelet == 0, s.kubelet != 0 && s.kubelet != after
	o.lost, o.pods = len(lost), len(s.pods)
	s.kubelet, s.outcomes = after, append(s.outcomes, o)
	say("%s", strings.Join(append([]string{o.words()}, notes...), "; "))
	if len(lost) > 0 {
		unwell = errors.Join(unwell, fmt.Errorf("pods were lost: %s", strings.Join(lost, ", ")))
	}

	must.OK(unwell)
}

// runPods starts pods on the real node, and records their containers.
func (s *show) runPods(ctx context.Context, names ...string) {
	pods := s.Kube.CoreV1().Pods(metav1.NamespaceDefault)
	for _, name := range names {
		pod := localcluster.SleepingPod(name)
		pod.Spec.NodeName = s.Node.Name()
		must.Get(pods.Create(ctx, pod, metav1.CreateOptions{}))
		bed.Await(ctx, patience, func(ctx context.Context) {
			status := must.Get(pods.Get(ctx, name, metav1.GetOptions{})).Status
			must.That(status.Phase == corev1.PodRunning, "pod %s is %s: %s %s", name, status.Phase, status.Reason, status.Message)
		})
	}

	s.pods = must.Get(s.Containers(ctx))
}

// podsLost returns the pods of runPods that do not run any more, or whose
// containers are not those of runPods.
func (s *show) podsLost(ctx context.Context) []string {
	return lostOf(s.pods, must.Get(s.Containers(ctx)))
}

// lostOf compares pods, by their names, and returns those that were lost, each
// with what there is now.
func lostOf(before, now map[string]string) (lost []string) {
	for name, was := range before {
		if now[name] != was {
			lost = append(lost, fmt.Sprintf("%s (%s)", name, cmp.Or(now[name], "deleted")))
		}
	}

	slices.Sort(lost)

	return lost
}
