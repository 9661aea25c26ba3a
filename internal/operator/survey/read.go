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
	"k8s.io/client-go/util/workqueue"

	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/payload"
)

const (
	// AtOnce is how many nodes are asked at the same time.
	AtOnce = 20
	// Patience is how long a node may take to answer.
	Patience = 10 * time.Second
	// maxKept limits the size of all distinct configurations together, in
	// bytes. Those of 5,000 nodes need 25 MiB at most.
	maxKept = 32 << 20
)

// Role is the smallest role that a survey needs.
const Role = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: evenkeel-survey}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [list]}
- {apiGroups: [""], resources: [nodes/proxy], verbs: [get]}
`

// Read asks the kubelets of the nodes for their effective configurations,
// through the API server: at most AtOnce at a time, each for at most patience.
// Nodes that are not Ready are asked last. tell is called after each answer,
// with the number of answers so far.
//
// If ctx ends, the nodes that have not answered say so. The error is about the
// user's permissions: all of the first answers say that they are missing. A
// single kubelet can pretend that.
func Read(ctx context.Context, api rest.Interface, nodes []Node, patience time.Duration, tell func(done int)) ([]Answer, error) {
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	order := slices.Clone(nodes)
	rank := map[bool]int{false: 1}
	slices.SortStableFunc(order, func(a, b Node) int { return rank[a.ready] - rank[b.ready] })
	answers := make([]Answer, len(order))
	kept := keeper{distinct: map[string]*Config{}}
	var mu sync.Mutex
	done, refused := 0, 0
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), AtOnce, len(order), func(i int) {
		a, err := ask(asking, api, order[i], patience)
		mu.Lock()
		defer mu.Unlock()
		answers[i] = kept.keep(a)
		if done++; err != nil {
			refused++
		}
		if refused == done && done >= min(AtOnce, len(order)) {
			cancel(err)
		}

		tell(done)
	})
	if err := context.Cause(asking); err != nil && ctx.Err() == nil {
		return nil, err
	}

	return answers, nil
}

var interrupted = Finding{ID: "interrupted", Wrong: "the command was interrupted before the kubelet answered"}

// keeper keeps one copy of each distinct configuration.
type keeper struct {
	distinct map[string]*Config
	size     int
}

func (k *keeper) keep(a Answer) Answer {
	if a.Config == nil {
		return a
	}

	if k.distinct[a.Config.text] == nil {
		if k.size += len(a.Config.text); k.size > maxKept {
			return Answer{Node: a.Node, Failed: Finding{ID: "noRoom", Wrong: "there is no room for it: all distinct configurations exceed 32 MiB"}}
		}

		k.distinct[a.Config.text] = a.Config
	}

	a.Config = k.distinct[a.Config.text]

	return a
}

// ask returns the answer of a node. The error is that the user may not ask, as
// far as the answer says.
func ask(ctx context.Context, api rest.Interface, n Node, patience time.Duration) (Answer, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a := Answer{Node: n}
	fields, err := query.Configz(limited, api, n.Name)
	if err == nil {
		a.Config, err = configOf(n, fields)
		return a, err
	}

	const maxDetail = 300
	a.Failed = Finding{ID: "unreachable", Wrong: "the API server does not reach the kubelet", Detail: fmt.Sprintf("%.*s", maxDetail, err)}
	failed := &a.Failed
	switch forbidden := apierrors.IsForbidden(err); {
	case ctx.Err() != nil:
		*failed = interrupted
	case errors.As(err, new(*payload.Error)) || errors.Is(err, query.ErrNoConfiguration):
		failed.ID, failed.Wrong = "notAConfiguration", "the answer is not a kubelet's configuration"
	case limited.Err() != nil:
		failed.ID, failed.Wrong = "timeout", fmt.Sprintf("no answer within %s", patience)
	case forbidden && strings.Contains(failed.Detail, "nodes/proxy"): // the kubelet's own refusal names other resources, or none
		failed.ID, failed.Wrong = "forbidden", "you may not get nodes/proxy of the node, or its kubelet says so"
		return a, fmt.Errorf("read the configuration of node %s: %w", n.Name, err)
	case forbidden || apierrors.IsUnauthorized(err):
		failed.ID, failed.Wrong = "refused", "the kubelet does not let the API server read /configz"
	case apierrors.IsNotFound(err):
		failed.ID, failed.Wrong = "noConfigz", "the kubelet serves no /configz (enableDebuggingHandlers is false), or the node was deleted"
	}

	return a, nil
}
