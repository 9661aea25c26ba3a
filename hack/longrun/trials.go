// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const (
	wholeTrial = 10 * time.Minute               // the default of --config-trial-duration
	lateInIt   = 9*time.Minute + 50*time.Second // when the failing trials fail
)

// onTrial is a node with the agent's default flags, and a configuration on trial.
type onTrial struct {
	*bed.Bed
	agent *bed.Agent
	cm    *corev1.ConfigMap
	begin time.Time // when the kubelet was first seen healthy with it
}

// trials runs three trials of the default length side by side: one that is promoted, and two that fail late, because the kubelet
// crashes or hangs.
func trials(ctx context.Context) (err error) {
	defer must.Catch(&err)

	cluster := must.Get(localcluster.Start(ctx, localcluster.Options{}))
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	var nodes []*onTrial
	defer func() {
		for _, n := range nodes {
			err = errors.Join(err, n.agent.Stop(time.Minute))
		}
	}()
	for _, name := range []string{"promoted", "crashing", "hanging"} {
		n, err := newTrial(ctx, cluster, name)
		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
		nodes = append(nodes, n)
	}
	ended := make(chan error)
	for i, part := range []func(context.Context) error{
		nodes[0].isPromoted,
		func(ctx context.Context) error { return nodes[1].fails(ctx, "CrashLooped", nodes[1].crash) },
		func(ctx context.Context) error { return nodes[2].fails(ctx, "NotHealthy", nodes[2].hang) },
	} {
		go func() {
			err := part(ctx)
			if err != nil {
				err = fmt.Errorf("node %s: %w", nodes[i].Node.Name(), err)
			}
			ended <- err
		}()
	}
	for range nodes {
		err = errors.Join(err, <-ended)
	}
	if err == nil {
		fmt.Println("soak: node-whole-trials-promoted 1\nsoak: node-whole-trials-failed-late 2")
	}
	return err
}

// newTrial makes a node, assigns a configuration, and returns when its trial has begun.
func newTrial(ctx context.Context, cluster *localcluster.Cluster, name string) (_ *onTrial, err error) {
	defer must.Catch(&err)

	b := must.Get(bed.On(ctx, cluster, name))
	n := &onTrial{Bed: b}
	n.agent = must.Get(b.Agent())
	must.OK(n.agent.Start())
	must.Get(n.until(ctx, patience, "LocalInit"))
	data := must.Get(b.Config(map[string]any{"maxPods": 123}))
	n.cm = must.Get(b.Create(ctx, name, map[string]string{"kubelet": data}))
	must.OK(b.Assign(ctx, bed.Ref(n.cm)))
	nc := must.Get(n.until(ctx, patience, "AllChecksPassed"))
	if t := nc.Status.Trial; t == nil || t.DurationSeconds != int64(wholeTrial.Seconds()) {
		return nil, fmt.Errorf("the trial is %+v, not of %s", t, wholeTrial)
	}
	must.OK(n.runs(ctx, 123))
	n.begin = time.Now()
	return n, nil
}

// until waits until ConfigOK has the reason.
func (n *onTrial) until(ctx context.Context, within time.Duration, reason string) (nc *v1alpha1.NodeConfig, err error) {
	err = bed.Eventually(ctx, within, func(ctx context.Context) (err error) {
		if nc, err = n.Get(ctx); err != nil {
			return err
		}
		if c := bed.ConfigOK(nc); c.Reason != reason || c.ObservedGeneration != nc.Generation {
			return fmt.Errorf("ConfigOK is %s, %s, %q, not %s", c.Status, c.Reason, c.Message, reason)
		}
		return nil
	})
	return nc, err
}

// reachesEnd waits until the trial is in its last seconds. Until then nothing may be promoted.
func (n *onTrial) reachesEnd(ctx context.Context) (err error) {
	defer must.Catch(&err)

	for {
		nc := must.Get(n.Get(ctx))
		seconds, ok := metric(ctx, n.agent.Listen, "evenkeel_trial_healthy_seconds")
		switch {
		case !ok:
			return errors.New("the agent does not report evenkeel_trial_healthy_seconds")
		case nc.Status.LastKnownGood != nil:
			return fmt.Errorf("last-known-good is %+v after %.0f s", nc.Status.LastKnownGood, seconds)
		case seconds >= lateInIt.Seconds():
			return nil
		case time.Since(n.begin) > wholeTrial+patience:
			return fmt.Errorf("the kubelet was healthy for only %.0f s", seconds)
		}
		must.OK(bed.Pause(ctx, time.Second))
	}
}

func (n *onTrial) isPromoted(ctx context.Context) (err error) {
	defer must.Catch(&err)

	must.OK(n.reachesEnd(ctx))
	must.OK(bed.Eventually(ctx, patience, func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err == nil && (nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.UID != n.cm.UID || nc.Status.Trial != nil) {
			err = fmt.Errorf("last-known-good is %+v, the trial %+v", nc.Status.LastKnownGood, nc.Status.Trial)
		}
		return err
	}))
	took := time.Since(n.begin)
	fmt.Printf("%s: promoted %s after its kubelet was healthy\n", n.Node.Name(), took.Round(time.Second))
	if took < wholeTrial-10*time.Second { // the agent saw it healthy a little earlier
		return fmt.Errorf("promoted after %s", took)
	}
	return n.runs(ctx, 123)
}

// fails breaks the kubelet in the last seconds of the trial, and requires that the node goes back and stays there.
func (n *onTrial) fails(ctx context.Context, reason string, harm func(context.Context) error) (err error) {
	defer must.Catch(&err)

	must.OK(n.reachesEnd(ctx))
	harmed := time.Since(n.begin)
	must.OK(harm(ctx))
	nc := must.Get(n.until(ctx, patience, reason))
	c := bed.ConfigOK(nc)
	fmt.Printf("%s: broken after %s, rolled back after %s: %s (%s): %s\n", n.Node.Name(), harmed.Round(time.Second), time.Since(n.begin).Round(time.Second), c.Status, c.Reason, c.Message)
	switch s := nc.Status; {
	case c.Status != metav1.ConditionFalse || !strings.HasPrefix(c.Message, "using last-known-good (init)"):
		return errors.New("ConfigOK must be False, and say that the node uses its local configuration")
	case s.Active != nil || s.LastKnownGood != nil:
		return fmt.Errorf("active is %+v and last-known-good %+v, not local", s.Active, s.LastKnownGood)
	case len(s.BadConfigs) != 1 || s.BadConfigs[0].UID != n.cm.UID:
		return fmt.Errorf("the bad configurations are %+v", s.BadConfigs)
	}
	must.OK(n.runs(ctx, 110))
	pid := must.Get(n.agent.KubeletPID())
	must.OK(bed.Pause(ctx, time.Minute))
	switch now, err := n.agent.KubeletPID(); {
	case err != nil:
		return err
	case now != pid:
		return fmt.Errorf("the kubelet was restarted after the rollback: process %d, was %d", now, pid)
	}
	return n.runs(ctx, 110)
}

// runs waits until the node is healthy with this capacity for pods.
func (n *onTrial) runs(ctx context.Context, want int64) error {
	return bed.Eventually(ctx, patience, func(ctx context.Context) error {
		if err := n.Healthy(ctx); err != nil {
			return err
		}
		pods, err := n.MaxPods(ctx)
		if err == nil && pods != want {
			err = fmt.Errorf("the node has a capacity for pods of %d, not %d", pods, want)
		}
		return err
	})
}

// crash kills the kubelet each time it runs on trial, until another one runs.
func (n *onTrial) crash(ctx context.Context) error {
	return bed.Eventually(ctx, patience, func(context.Context) (err error) {
		defer must.Catch(&err)

		pid := must.Get(n.agent.KubeletPID())
		argv := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)))
		switch {
		case !strings.Contains(string(argv), "--kubeconfig="): // it has just ended, and has no command line any more
			return errors.New("the kubelet has ended")
		case !strings.Contains(string(argv), "/rendered/"+string(n.cm.UID)):
			return nil
		}
		return errors.Join(errors.New("the trial goes on"), syscall.Kill(pid, syscall.SIGKILL))
	})
}

// hang stops the kubelet, so that it lives and does not answer.
func (n *onTrial) hang(context.Context) (err error) {
	defer must.Catch(&err)

	pid := must.Get(n.agent.KubeletPID())
	return syscall.Kill(pid, syscall.SIGSTOP)
}
