// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/source"
)

// NodeAPI implements API with the credentials of one node.
type NodeAPI struct {
	Client *source.Client
	Node   string
}

// Snapshot implements API.
func (a NodeAPI) Snapshot(ctx context.Context) source.NodeState {
	return a.Client.Snapshot(ctx, a.Node)
}

// Turn implements API.
func (a NodeAPI) Turn(ctx context.Context) (string, error) {
	return a.Client.NodeAnnotation(ctx, a.Node, v1alpha1.AnnotationAgentTurn)
}

// Event implements API.
func (a NodeAPI) Event(ctx context.Context, severity source.Severity, reason, message string) error {
	return a.Client.Event(ctx, a.Node, "evenkeel-agent", severity, reason, message)
}
