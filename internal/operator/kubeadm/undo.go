// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Undo returns the writes that restore the contents before the record's Store; none if they are already there. Labels and other
// annotations stay. Undo fails if ConfigMaps were changed since the Store, and names them, unless overwrite is set.
func (r *UndoRecord) Undo(ctx context.Context, c client.Client, overwrite bool) ([]Write, error) {
	now, err := r.readConfigMaps(ctx, c)
	if err != nil {
		return nil, err
	}
	return r.undo(now, overwrite)
}

// undo returns the writes, given the current ConfigMaps.
func (r *UndoRecord) undo(now map[client.ObjectKey]*corev1.ConfigMap, overwrite bool) ([]Write, error) {
	var writes []Write
	var foreign []string
	for _, s := range slices.Backward(r.saved) {
		found := now[s.key()]
		if contentDigest(found) == contentDigest(s.Before) {
			continue
		}
		if !overwrite && !slices.Contains(s.Written, contentDigest(found)) {
			foreign = append(foreign, s.key().String())
		}
		writes = append(writes, Write{Old: found, New: s.Before})
	}
	if len(foreign) > 0 {
		slices.Sort(foreign)
		return nil, fmt.Errorf("changed since %s: ConfigMap %s: undo that change by hand, "+
			"or discard it with --overwrite", r, strings.Join(foreign, ", "))
	}
	return writes, nil
}

// Restore sends the writes that Undo returned, and then deletes the record, so that the next undo restores the apply before it.
// Nothing is written if the API server rejects one of the writes in a dry run. After an error or an interruption, another Undo and
// Restore continue.
func Restore(ctx context.Context, c client.Client, r *UndoRecord, writes []Write) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	ctx, cancel := withoutCancel(ctx)
	defer cancel()
	done := Write{Old: r.stored}
	if _, err := done.send(ctx, client.NewDryRunClient(c)); err != nil {
		return fmt.Errorf("nothing was restored: %w", r.explainSaveError(err))
	}
	if err := DryRun(ctx, c, writes); err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	for i, w := range writes {
		if _, err := w.carryOut(ctx, c); err != nil {
			return fmt.Errorf("%d of %d ConfigMaps were restored: %w", i, len(writes), w.explainError(err))
		}
	}
	if _, err := done.carryOut(ctx, c); err != nil {
		return fmt.Errorf("everything was restored, but undo record %s may still exist; the next undo then has nothing to do: %w", r.Name, err)
	}
	return nil
}
