// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet"
)

// watchList lists rollouts, and then each that changes, until ctx ends.
func (a *app) watchList(ctx context.Context, c client.WithWatch, f printing.Format) error {
	table := printing.NewTable(a.Out, listHeader(f))
	changes := command.Changes{ErrOut: a.ErrOut, Noun: "rollout"}
	return a.WatchList(ctx, c, []client.ObjectList{&v1alpha1.NodeConfigRolloutList{}}, func(c client.WithWatch) error {
		list, err := fleet.Rollouts(ctx, c)
		if err != nil {
			return fmt.Errorf("list rollouts: %w", err)
		}
		if first := changes.Begin(); first && len(list.Items) == 0 {
			fmt.Fprintln(a.ErrOut, "No rollouts found yet; create one with: kubectl evenkeel push NAME -f FILE --selector LABELS")
		}
		for i := range list.Items {
			r := &list.Items[i]
			r.ManagedFields = nil
			row := listRow(f, r)
			switch f {
			case printing.JSON, printing.YAML:
				if changes.Changed(r.Name, r.ResourceVersion) {
					err = printing.One(a.Out, f, r)
				}
			case printing.Name:
				if changes.Changed(r.Name, r.ResourceVersion) {
					err = printing.Object(a.Out, f, r)
				}
			default:
				if changes.Changed(r.Name, strings.Join(slices.Delete(slices.Clone(row), ageColumn, ageColumn+1), "\x00")) {
					err = table.Add(row)
				}
			}
			if err != nil {
				return err
			}
		}
		changes.End()
		return table.Flush()
	})
}
