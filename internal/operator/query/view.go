// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// GetPair reads a node and its NodeConfig. It is no error if one of them does not exist, or if the user may not read Nodes but
// the NodeConfig exists.
func GetPair(ctx context.Context, c client.Reader, name string) (fleet.Pair, error) {
	var p fleet.Pair
	var node corev1.Node
	var config v1alpha1.NodeConfig
	key := client.ObjectKey{Name: name}
	err := c.Get(ctx, key, &node)
	switch {
	case err == nil:
		p.Node = &node
	case apierrors.IsForbidden(err):
		p.NodeUnread = true
	case !missing(err):
		return p, fmt.Errorf("get node %s: %w", name, err)
	}
	denied := err
	err = c.Get(ctx, key, &config)
	switch {
	case err == nil:
		p.Config = &config
	case !missing(err):
		return p, fmt.Errorf("get NodeConfig %s%s: %w", name, installed(err), err)
	}
	if p.NodeUnread && p.Config == nil {
		return p, fmt.Errorf("get node %s: %w", name, denied)
	}
	if p.Node == nil && p.Config == nil {
		return p, fmt.Errorf("node %q does not exist: list the nodes with: kubectl evenkeel nodes", name)
	}
	return p, nil
}

// NodeView is a node with the rollouts that select it.
type NodeView struct {
	fleet.Pair
	Rollouts []string // the rollouts that select the node, the owner first
	Owner    string   // the rollout that assigns its configuration; empty: none
	Fleet    *Fleet   // of the owner; nil without an owner, or if it cannot be planned
	Err      error    // why the owner cannot be planned
	// AgentTimeout is the time after which the controller takes an agent that does not answer for silent.
	AgentTimeout time.Duration
}

// ViewNode reads a node, its NodeConfig, and the fleet of the rollout that owns the node.
func ViewNode(ctx context.Context, c client.Reader, name string) (*NodeView, error) {
	p, err := GetPair(ctx, c, name)
	if err != nil {
		return nil, err
	}
	list, err := Rollouts(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("list rollouts: %w", err)
	}
	all := list.Items
	v := &NodeView{Pair: p, AgentTimeout: fleet.SettingsIn(all).AgentTimeout.Duration}
	if p.Node == nil {
		return v, nil
	}
	claims := fleet.ClaimsOn(fleet.SelectionsOf(all), p.Node)
	n := fleet.NodeOf(p.Node, p.Config)
	v.Owner = rollout.Holder(claims, &n)
	if v.Owner != "" {
		v.Rollouts = append(v.Rollouts, v.Owner)
	}
	for _, claim := range claims {
		if claim.Name != v.Owner {
			v.Rollouts = append(v.Rollouts, claim.Name)
		}
	}
	for i := range all {
		if all[i].Name == v.Owner {
			v.Fleet, v.Err = Gather(ctx, c, &all[i], nil)
		}
	}
	return v, nil
}
