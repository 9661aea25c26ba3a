// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
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

func (s *show) gather(ctx context.Context) {
	s.title("A fleet: this node and %d simulated ones, with the real agent in each", hollowNodes)
	s.simple = false
	file := must.Get(os.Create(s.logFile(hollowLog)))
	s.stops = append(s.stops, file.Close)
	log := slog.New(slog.NewTextHandler(file, nil))
	// The nodes live until the demo stops them, also after a failed step.
	nodes := must.Get(hollow.Start(context.WithoutCancel(ctx), hollow.Options{
		Config: s.Cluster.AdminConfig(), Nodes: hollowNodes, Zones: 3, Labels: map[string]string{poolLabel: pool},
		Limits: trial.Limits{TrialDuration: 2 * time.Second, CrashLoopThreshold: 1},
		// The nodes crash like the real kubelet.
		Faults: []hollow.Fault{{Kind: hollow.CrashLoop, Payload: "kubeReserved"}},
		Log:    log, AgentLog: log,
	}))
	s.stops = append(s.stops, nodes.Stop)
	s.kubectl(ctx, 0, "label", "node", s.Node.Name(), poolLabel+"="+pool)
	say("A rollout changes no node that a person has assigned something to, so the assignment is removed:")
	s.kubectl(ctx, 0, "evenkeel", "assign", s.Node.Name(), "--release", "--yes")
	s.until(ctx, "True", "LocalInit")
	s.capacity(ctx, 110)
	members := must.Get(s.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: poolLabel + "=" + pool}))
	s.members = len(members.Items)
	s.verdict(ctx, outcome{}, printable.Count(s.members, "node")+" in the fleet")
}

func (s *show) goodRollout(ctx context.Context) {
	s.title("A good change for all of them: one node first, then a quarter, then the rest")
	s.push(ctx, "good", "maxPods: 125\n", "--selector="+poolLabel+"="+pool, "--steps=1,25%,100%", "--max-unavailable=50%")
	s.pushed = true
	s.kubectl(ctx, 0, "evenkeel", "rollout", "status", rollout, "-w")
	s.capacity(ctx, 125)
	has := s.received(ctx, s.revision(ctx))
	s.verdict(ctx, outcome{}, fmt.Sprintf("%d of %s run it", len(has), printable.Count(s.members, "node")))
}

func (s *show) badRollout(ctx context.Context) {
	s.title("The change that crashes kubelets, for all of them")
	s.push(ctx, "bad", "kubeReserved: {ephemeral-storage: 100Ti}\nmaxPods: 130\n")
	s.kubectl(ctx, 2, "evenkeel", "rollout", "status", rollout, "-w")
	bad := s.revision(ctx)
	halted := s.received(ctx, bad)
	for _, args := range [][]string{
		{"evenkeel", "nodes", "--problems"},
		{"evenkeel", "rollout", "undo", rollout},
		{"evenkeel", "rollout", "status", rollout, "-w"},
		{"evenkeel", "rollout", "history", rollout},
	} {
		s.kubectl(ctx, 0, args...)
	}

	s.capacity(ctx, 125)
	maps.Copy(halted, s.received(ctx, bad))
	s.saw = len(halted)
	must.That(s.saw > 0, "the rollout halted, but no node has received its bad configuration")
	delete(halted, s.Node.Name())
	s.verdict(ctx, outcome{bad: true, crashed: len(halted) > 0},
		fmt.Sprintf("%d of %s received it", s.saw, printable.Count(s.members, "node")))
}

// revision returns the configuration that the rollout rolls out.
func (s *show) revision(ctx context.Context) types.UID {
	r := must.Get(s.GetRollout(ctx, rollout)).Status.UpdateRevision
	must.That(r != nil, "rollout %s has no revision", rollout)

	return r.ConfigMapRef.UID
}

// received returns the nodes that have a ConfigMap assigned, run it, or
// remember it as bad.
func (s *show) received(ctx context.Context, uid types.UID) map[string]bool {
	return receivedBy(must.Get(s.ListNodeConfigs(ctx)), uid)
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
func (s *show) push(ctx context.Context, name, fields string, flags ...string) {
	s.kubectl(ctx, 0, append([]string{"evenkeel", "push", rollout, "-f", s.dropIn(name, fields), "--drop-in", "--yes"}, flags...)...)
}
