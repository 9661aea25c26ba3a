// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
)

const (
	// AtOnce is how many nodes are asked at the same time.
	AtOnce = 20
	// Patience is how long a node may take to answer.
	Patience = 10 * time.Second
	// maxKept limits the size of all distinct configurations together, in bytes. Those of 5,000 nodes need 25 MiB at most.
	maxKept = 64 << 20
)

// Role is the smallest role that a survey needs.
const Role = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: evenkeel-survey}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [list]}
- {apiGroups: [""], resources: [nodes/proxy], verbs: [get]}
`

// Read asks the kubelets of the nodes for their effective configurations, through the API server: at most AtOnce at a time, each for
// at most patience. Nodes that are not Ready are asked last. tell is called after each answer, with the number of answers so far.
//
// If ctx ends, the nodes that have not answered say so. The error is about the user's permissions.
func Read(ctx context.Context, api rest.Interface, nodes []Node, patience time.Duration, tell func(done int)) ([]Answer, error) {
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	order := slices.Clone(nodes)
	slices.SortStableFunc(order, func(a, b Node) int {
		switch {
		case a.ready == b.ready:
			return 0
		case a.ready:
			return -1
		}
		return 1
	})
	answers := make([]Answer, len(order))
	var kept keeper
	var mu sync.Mutex
	done := 0
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(AtOnce, len(order)) {
		workers.Go(func() {
			for i := range next {
				a, err := ask(asking, api, order[i], patience)
				mu.Lock()
				answers[i] = kept.keep(a)
				if err != nil {
					cancel(err)
				}
				done++
				tell(done)
				mu.Unlock()
			}
		})
	}
	for i := range order {
		select {
		case next <- i:
		case <-asking.Done():
			answers[i] = Answer{Node: order[i], Failed: interrupted}
		}
	}
	close(next)
	workers.Wait()
	if err := context.Cause(asking); err != nil && ctx.Err() == nil {
		return nil, err
	}
	return answers, nil
}

const interrupted = "the command was interrupted before the kubelet answered"

// keeper keeps one copy of each distinct configuration.
type keeper struct {
	distinct map[string]string
	size     int
}

func (k *keeper) keep(a Answer) Answer {
	if a.Config == "" {
		return a
	}
	if same, is := k.distinct[a.Config]; is {
		a.Config = same
		return a
	}
	if k.size+len(a.Config) > maxKept {
		return Answer{Node: a.Node, Failed: fmt.Sprintf("there is no room for its configuration: all distinct ones together exceed %d MiB", maxKept>>20)}
	}
	if k.distinct == nil {
		k.distinct = map[string]string{}
	}
	k.distinct[a.Config] = a.Config
	k.size += len(a.Config)
	return a
}

// ask returns the answer of a node. The error is that the user may not ask.
func ask(ctx context.Context, api rest.Interface, n Node, patience time.Duration) (Answer, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a := Answer{Node: n}
	fields, err := fleet.Configz(limited, api, n.Name)
	if err == nil {
		a.Config, err = configOf(n, fields)
	}
	if err == nil {
		return a, nil
	}
	const maxDetail = 300
	a.Detail = fmt.Sprintf("%.*s", maxDetail, err)
	var refused *payload.Error
	switch {
	case ctx.Err() != nil:
		a.Failed = interrupted
	case limited.Err() != nil:
		a.Failed = fmt.Sprintf("no answer within %s", patience)
	// The kubelet's own refusal names other resources, or none.
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "nodes/proxy"):
		return a, fmt.Errorf("read the configuration of node %s: %w", n.Name, err)
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		a.Failed = "the kubelet does not let the API server read /configz"
	case apierrors.IsNotFound(err):
		a.Failed = "the kubelet serves no /configz (enableDebuggingHandlers: false), or the node was deleted"
	case errors.As(err, &refused) || errors.Is(err, fleet.ErrNoConfiguration):
		a.Failed = "the answer is not a kubelet's configuration"
	default:
		a.Failed = "the API server does not reach the kubelet"
	}
	return a, nil
}
