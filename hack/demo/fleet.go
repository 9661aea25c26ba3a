// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/hollow"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const (
	hollowNodes = 20
	poolLabel   = "node-restriction.kubernetes.io/pool"
	pool        = "demo"
	rollout     = "demo"
)

func (s *show) gather(ctx context.Context) (err error) {
	defer must.Catch(&err)

	s.title("A fleet: this node and %d simulated ones, with the real agent in each", hollowNodes)
	s.simple = false
	s.hollowLog = must.Get(os.Create(s.logFile("hollow-nodes")))
	log := slog.New(slog.NewTextHandler(s.hollowLog, nil))
	// The nodes live until the demo stops them, also after a failed step.
	s.hollow = must.Get(hollow.Start(context.WithoutCancel(ctx), hollow.Options{
		Config: s.Cluster.AdminConfig(), Nodes: hollowNodes, Zones: 3, Labels: map[string]string{poolLabel: pool},
		Limits: trial.Limits{TrialDuration: 2 * time.Second, CrashLoopThreshold: 1},
		// The nodes crash like the real kubelet.
		Faults: []hollow.Fault{{Kind: hollow.CrashLoop, Payload: "kubeReserved"}},
		Log:    log, AgentLog: log,
	}))
	must.OK(s.kubectl(ctx, 0, "label", "node", s.Node.Name(), poolLabel+"="+pool))
	say("A rollout changes no node that a person has assigned something to, so the assignment is removed:")
	must.OK(s.kubectl(ctx, 0, "evenkeel", "assign", s.Node.Name(), "--release", "--yes"))
	must.Get(s.until(ctx, "True", "LocalInit"))
	must.OK(s.capacity(ctx, 110))
	nodes := must.Get(s.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: poolLabel + "=" + pool}))
	s.members = len(nodes.Items)

	return s.verdict(ctx, outcome{}, printable.Count(s.members, "node")+" in the fleet")
}

func (s *show) goodRollout(ctx context.Context) (err error) {
	defer must.Catch(&err)

	s.title("A good change for all of them: one node first, then a quarter, then the rest")
	must.OK(s.push(ctx, "good", "maxPods: 125\n", "--selector="+poolLabel+"="+pool, "--steps=1,25%,100%", "--max-unavailable=50%"))
	s.pushed = true
	must.OK(s.kubectl(ctx, 0, "evenkeel", "rollout", "status", rollout, "-w"))
	must.OK(s.capacity(ctx, 125))
	r := must.Get(s.GetRollout(ctx, rollout))
	if r.Status.UpdateRevision == nil {
		return fmt.Errorf("rollout %s has no revision", rollout)
	}

	has := must.Get(s.received(ctx, r.Status.UpdateRevision.ConfigMapRef.UID))

	return s.verdict(ctx, outcome{}, fmt.Sprintf("%d of %s run it", len(has), printable.Count(s.members, "node")))
}

func (s *show) badRollout(ctx context.Context) (err error) {
	defer must.Catch(&err)

	s.title("The change that crashes kubelets, for all of them")
	must.OK(s.push(ctx, "bad", "kubeReserved: {ephemeral-storage: 100Ti}\nmaxPods: 130\n"))
	must.OK(s.kubectl(ctx, 2, "evenkeel", "rollout", "status", rollout, "-w"))
	r := must.Get(s.GetRollout(ctx, rollout))
	if r.Status.UpdateRevision == nil {
		return fmt.Errorf("rollout %s has no revision", rollout)
	}

	bad := r.Status.UpdateRevision.ConfigMapRef.UID
	halted := must.Get(s.received(ctx, bad))
	for _, args := range [][]string{
		{"evenkeel", "nodes", "--problems"},
		{"evenkeel", "rollout", "undo", rollout},
		{"evenkeel", "rollout", "status", rollout, "-w"},
		{"evenkeel", "rollout", "history", rollout},
	} {
		must.OK(s.kubectl(ctx, 0, args...))
	}

	must.OK(s.capacity(ctx, 125))
	remembered := must.Get(s.received(ctx, bad))
	for name := range remembered {
		halted[name] = true
	}
	if s.saw = len(halted); s.saw == 0 {
		return errors.New("the rollout halted, but no node has received its bad configuration")
	}

	delete(halted, s.Node.Name())

	return s.verdict(ctx, outcome{bad: true, crashed: len(halted) > 0},
		fmt.Sprintf("%d of %s received it", s.saw, printable.Count(s.members, "node")))
}

// received returns the nodes that have a ConfigMap assigned, run it, or
// remember it as bad.
func (s *show) received(ctx context.Context, uid types.UID) (_ map[string]bool, err error) {
	defer must.Catch(&err)

	all := must.Get(s.ListNodeConfigs(ctx))
	return receivedBy(all, uid), nil
}

func receivedBy(all []v1alpha1.NodeConfig, uid types.UID) map[string]bool {
	names := map[string]bool{}
	for _, nc := range all {
		source, active := nc.Spec.ConfigSource, nc.Status.Active
		has := source != nil && source.ConfigMapRef != nil && source.ConfigMapRef.UID == uid || active != nil && active.UID == uid
		for _, bad := range nc.Status.BadConfigs {
			has = has || bad.UID == uid
		}
		if has {
			names[nc.Name] = true
		}
	}

	return names
}

// push pushes fields as a drop-in for the fleet.
func (s *show) push(ctx context.Context, name, fields string, flags ...string) (err error) {
	defer must.Catch(&err)

	file := must.Get(s.dropIn(name, fields))
	return s.kubectl(ctx, 0, append([]string{"evenkeel", "push", rollout, "-f", file, "--drop-in", "--yes"}, flags...)...)
}

func (s *show) logFile(name string) string { return filepath.Join(s.Cluster.Dir(), "log", name+".log") }
