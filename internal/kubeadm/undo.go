package kubeadm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Undo returns the writes that restore what was there before the record's Store; none if that is there. Data, binaryData
// and signatures are restored; labels and annotations that others have set stay. ConfigMaps that somebody else has changed
// since are an error that names them all, unless they may be overwritten.
func (r *UndoRecord) Undo(ctx context.Context, c client.Client, overwrite bool) ([]Write, error) {
	now, err := r.readConfigMaps(ctx, c)
	if err != nil {
		return nil, err
	}
	return r.undo(now, overwrite)
}

// undo is Undo when all is read.
func (r *UndoRecord) undo(now map[client.ObjectKey]*corev1.ConfigMap, overwrite bool) ([]Write, error) {
	var writes []Write
	var foreign []string
	for _, s := range slices.Backward(r.saved) {
		there := now[s.key()]
		if contentDigest(there) == contentDigest(s.Before) {
			continue
		}
		if !overwrite && !slices.Contains(s.Written, contentDigest(there)) {
			foreign = append(foreign, s.key().String())
		}
		writes = append(writes, Write{Old: there, New: s.Before})
	}
	if len(foreign) > 0 {
		slices.Sort(foreign)
		return nil, fmt.Errorf("changed by somebody else since %s: ConfigMap %s: undo it by hand, "+
			"or give --overwrite to lose that change", r, strings.Join(foreign, ", "))
	}
	return writes, nil
}

// Restore makes the writes that Undo returned, and then deletes the record, so that the next undo is of the apply before.
// Nothing is written if the API server would refuse one of them. After any error, and after an end at any point, another
// Undo and Restore carry on.
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
		return fmt.Errorf("everything was restored, but record %s may be left, and the next undo then finds nothing to do: %w", r.Name, err)
	}
	return nil
}
