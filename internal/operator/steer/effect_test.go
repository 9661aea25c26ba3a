// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAnAbortIsWrittenBeforeTheFleetIsRead(t *testing.T) {
	t.Cleanup(func(before time.Duration) func() { return func() { Patience = before } }(Patience))
	Patience = 50 * time.Millisecond
	var c client.WithWatch
	c = halted(t, interceptor.Funcs{List: func(ctx context.Context, under client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		if _, nodes := list.(*corev1.NodeList); !nodes {
			return under.List(ctx, list, o...)
		}

		assert.That(t, specOf(t, c).Abort != nil, "the nodes are read first")
		<-ctx.Done() // the fleet is large, or the API server does not answer

		return ctx.Err()
	}})
	words, err := EditAndTell(t.Context(), c, "workers", 2, Abort(true, ""))
	assert.NoError(t, err)
	assert.That(t, strings.HasPrefix(words, "rollout workers aborted: revision 2 stops") && strings.Contains(words, "; cannot tell which nodes change: ") &&
		strings.HasSuffix(words, "context deadline exceeded"), "it says %q", words)
}

func TestARetryReadsTheFleetOnceWhateverConflicts(t *testing.T) {
	lists, conflicts := 0, 0
	c := halted(t, interceptor.Funcs{
		List: func(ctx context.Context, under client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			lists++
			return under.List(ctx, list, o...)
		},
		Patch: func(ctx context.Context, under client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if conflicts++; conflicts < MostConflicts {
				return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), nil)
			}

			return under.Patch(ctx, o, p, options...)
		},
	})
	words, err := EditObserved(t.Context(), c, "workers", 2, Retry(t.Context(), c, nil, true))
	assert.NoError(t, err)
	assert.That(t, strings.HasPrefix(words, "rollout workers retried: attempt 2"), "it says %q", words)
	once := lists
	_, err = checkRetry(t.Context(), c, rolloutOf(t, c), nil)
	assert.NoError(t, err)
	assert.Equal(t, once, lists-once, "lists")
}
