// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
)

// watchNodes shows the nodes that the flags select, and then each that changes, until ctx ends.
func (a *app) watchNodes(ctx context.Context, c client.WithWatch, o nodesOptions, selector labels.Selector) error {
	out := newNodeRows(a.Out, o)
	changes := command.Changes{ErrOut: a.ErrOut, Noun: "node"}
	env := *a.Env
	lister := &app{&env} // prints its notes in the first round only
	kinds := []client.ObjectList{&corev1.NodeList{}, &v1alpha1.NodeConfigList{}, &v1alpha1.NodeConfigRolloutList{}}
	return a.WatchList(ctx, c, kinds, func(c client.WithWatch) error {
		rows, err := lister.rows(ctx, c, o, selector)
		if err != nil {
			return err
		}
		first := changes.Begin()
		for _, row := range rows {
			state, err := lasting(row)
			if err == nil && changes.Changed(row.Name, state) {
				err = out.add(row)
			}
			if err != nil {
				return err
			}
		}
		changes.End()
		if first {
			env.ErrOut = io.Discard
			return out.end(a.ErrOut)
		}
		return out.flush()
	})
}

// lasting returns a row without what changes all the time.
func lasting(row describe.Row) (string, error) {
	if t := row.Trial; t != nil {
		row.Trial = &describe.RowTrial{DurationSeconds: t.DurationSeconds, Restarts: t.Restarts, MostRestarts: t.MostRestarts}
	}
	if row.Health == describe.HealthUnknown {
		row.Cause = "" // says for how long
	}
	row.Why = ""
	return printing.Line(row)
}
