// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// nodeState is the state of a node in the live view, derived from its NodeConfig alone. The counts in the rollout's status, by
// the controller, are more exact.
type nodeState uint8

// The live view lists the last state first.
const (
	nodePending nodeState = iota
	nodeUpdated
	nodeSoaking
	nodeDraining
	nodeAssigned
	nodeTrial
	nodeRollingBack
	nodeFailed
)

var nodeStateNames = [...]string{"Pending", "Updated", "Soaking", "Draining", "Assigned", "Trial", "Rolling back", "Failed"}

func (s nodeState) String() string { return nodeStateNames[s] }

func (s nodeState) inFlight() bool { return s >= nodeSoaking && s <= nodeRollingBack }

// liveNode is a node in the live view.
type liveNode struct {
	name, zone string
	state      nodeState
	onTrial    bool // the kubelet runs the revision on trial
	since      time.Time
	why        string
}

// liveResult is the result of reading a rollout's nodes.
type liveResult struct {
	nodes []liveNode
	err   error
}

// lookAtNodes reads the nodes of the requested rollouts until ctx ends. It waits ten times as long as it reads, to load the API
// server little.
func lookAtNodes(ctx context.Context, c client.Client, requests <-chan *v1alpha1.NodeConfigRollout) <-chan liveResult {
	out := make(chan liveResult, 1)
	go func() {
		for {
			var r *v1alpha1.NodeConfigRollout
			select {
			case <-ctx.Done():
				return
			case r = <-requests:
			}
			begin := time.Now()
			var f liveResult
			f.nodes, f.err = liveNodes(ctx, c, r)
			select {
			case out <- f:
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(max(3*time.Second, 10*time.Since(begin))):
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// liveNodes reads the metadata of a rollout's Nodes, and their NodeConfigs, in pages.
func liveNodes(ctx context.Context, c client.Client, r *v1alpha1.NodeConfigRollout) ([]liveNode, error) {
	selection, err := fleet.SelectionOf(r)
	if err != nil {
		return nil, err
	}
	key := cmp.Or(r.Spec.Strategy.TopologyKey, corev1.LabelTopologyZone)
	nodes, index := []liveNode{}, map[string]int{}
	for n, err := range query.Metadata(ctx, c, corev1.SchemeGroupVersion.WithKind("NodeList"),
		client.MatchingLabelsSelector{Selector: selection.Nodes}) {
		if err != nil {
			return nil, fmt.Errorf("list Nodes: %w", err)
		}
		index[n.Name] = len(nodes)
		nodes = append(nodes, liveNode{name: n.Name, zone: n.Labels[key]})
	}
	for nc, err := range query.Configs(ctx, c) {
		if err != nil {
			return nil, fmt.Errorf("list NodeConfigs: %w", err)
		}
		if at, ok := index[nc.Name]; ok {
			nodes[at].look(r, nc)
		}
	}
	for _, d := range r.Status.DrainingNodes { // some of them have the revision already, and are not released yet
		if at, ok := index[d.Name]; ok && (nodes[at].state == nodePending || nodes[at].state == nodeTrial && !nodes[at].onTrial) {
			nodes[at].state, nodes[at].since, nodes[at].why = nodeDraining, d.Since.Time, d.Message
		}
	}
	for _, f := range r.Status.FailedNodes {
		if at, ok := index[f.Name]; ok {
			nodes[at].state, nodes[at].why = nodeFailed, f.Reason+": "+describe.WithoutUIDs(f.Message)
		}
	}
	return nodes, nil
}

// look sets the state of a node from its NodeConfig.
func (n *liveNode) look(r *v1alpha1.NodeConfigRollout, nc *v1alpha1.NodeConfig) {
	target, st, ref := r.Status.UpdateRevision, &nc.Status, nc.Spec.ConfigSource.By()
	if target == nil || ref.Name != r.Name {
		return
	}
	taken := st.ObservedGeneration >= nc.Generation
	if ref.Revision != target.Number {
		if r.Status.Halt != nil && (!taken || st.Trial != nil) {
			n.state, n.since, n.why = nodeRollingBack, ref.AssignedAt.Time, fmt.Sprintf("to revision %d", ref.Revision)
		}
		return
	}
	n.since = ref.AssignedAt.Time
	want := target.ConfigMapRef
	if !taken {
		n.state, n.why = nodeAssigned, "waiting for its agent"
		return
	}
	if t := st.Trial; t != nil {
		n.state, n.onTrial, n.why = nodeTrial, true, fmt.Sprintf("healthy %ds of %ds", t.HealthySeconds, t.DurationSeconds)
		if t.Restarts > 0 {
			n.why += ", " + printable.Count(int(t.Restarts), "restart")
		}
		return
	}
	for _, b := range st.BadConfigs {
		if b.UID == want.UID {
			n.state, n.why = nodeFailed, describe.WithoutUIDs(cmp.Or(st.Error, b.Reason))
			return
		}
	}
	good := st.LastKnownGood
	if good == nil || good.UID != want.UID && (want.SHA256 == "" || good.SHA256 != want.SHA256) {
		n.state, n.why = nodeTrial, cmp.Or(st.Error, "not decided yet")
		return
	}
	n.state = nodeUpdated
	mark := fleet.ObservationOf(nc) // the controller records since when the node is healthy
	if soak := time.Duration(r.Spec.SoakSeconds) * time.Second; mark.Rollout == ref.Name && mark.Revision == ref.Revision &&
		!mark.HealthySince.IsZero() && time.Since(mark.HealthySince) < soak {
		n.state, n.why = nodeSoaking, fmt.Sprintf("healthy since its trial, must stay so for %s", soak)
	}
}
