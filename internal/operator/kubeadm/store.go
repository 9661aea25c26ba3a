// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Write is a change of one ConfigMap. If the ConfigMap exists, only its data,
// binaryData and signatures are written; labels and other annotations stay.
type Write struct {
	Old *corev1.ConfigMap // as read from the cluster; nil to create it
	New *corev1.ConfigMap // nil to delete it
}

// Store writes ConfigMaps in order, and records their previous contents for
// undo. why is the record's purpose, such as "v1.37.0". Writes that change
// nothing are skipped; without any other write there is no record.
//
// Nothing is written if the API server rejects one of the writes in a dry run.
// Store fails if a ConfigMap was changed since it was read; earlier writes
// stay, and undo restores them. After an error or an interruption, the next
// Store continues: undo then restores the contents before the first one.
func Store(ctx context.Context, c client.Client, why string, writes []Write) error {
	writes = slices.DeleteFunc(slices.Clone(writes), func(w Write) bool { return contentDigest(w.Old) == contentDigest(w.New) })
	if len(writes) == 0 {
		return nil
	}
	// From here on, finishing is quicker than finding out which writes were
	// made.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}

	ctx, cancel := withoutCancel(ctx)
	defer cancel()
	r, earlier, err := newUndoRecord(ctx, c, why, writes)
	if err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	if err := DryRun(ctx, c, writes); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	if err := r.save(ctx, c); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}

	for i, w := range writes {
		if _, err := w.carryOut(ctx, c); err != nil {
			return fmt.Errorf("%d of %d ConfigMaps were written: %w", i, len(writes), r.fail(ctx, c, writes[i:], err))
		}
	}

	r.progress = progressApplied
	if err := r.save(ctx, c); err != nil {
		return fmt.Errorf("everything was written, but the undo record could not be completed: %w", err)
	}
	if err := prune(ctx, c, earlier); err != nil {
		return fmt.Errorf("everything was written, but an old undo record could not be deleted: %w", err)
	}

	return nil
}

// withoutCancel returns a context that does not end with ctx, but after a time
// in which a working API server answers.
func withoutCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
}

// newUndoRecord returns the record of the writes, and the earlier records, the
// oldest first. If the newest record is of an interrupted Store, it is
// continued, because undo must restore what that record saved.
func newUndoRecord(ctx context.Context, c client.Client, why string, writes []Write) (r *UndoRecord, earlier []corev1.ConfigMap,
	err error) {
	if earlier, err = listUndoRecords(ctx, c); err != nil {
		return nil, nil, err
	}

	number := 1
	if last := len(earlier) - 1; last >= 0 {
		newest, err := decode(&earlier[last])
		if err != nil {
			return nil, nil, err
		}

		number = numberOf(newest.stored) + 1
		now, err := newest.readConfigMaps(ctx, c)
		if err != nil {
			return nil, nil, err
		}

		if newest.interrupted(now) {
			r, earlier = newest, earlier[:last]
			for key, cm := range now { // ConfigMaps that are not in writes keep their content
				r.planWrite(key, cm, cm)
			}
		}
	}

	if r == nil {
		r = &UndoRecord{Name: fmt.Sprintf("%s%05d", recordPrefix, number)}
	}

	r.Why, r.Time, r.progress = why, time.Now().UTC(), progressStarted
	for _, w := range writes {
		r.planWrite(w.key(), w.Old, w.New)
	}

	return r, earlier, nil
}

// fail returns the error of the failed write, the first of left. Writes that
// the API server certainly rejected are removed from the record; otherwise undo
// would take the old content for an edit of the new one.
func (r *UndoRecord) fail(ctx context.Context, c client.Client, left []Write, err error) error {
	certain := refused(err)
	err = left[0].explainError(err)
	if !certain {
		return err
	}

	r.progress = progressStopped
	for _, w := range left {
		r.dropWrite(w)
	}
	if saveErr := r.save(ctx, c); saveErr != nil {
		return fmt.Errorf("%w (the undo record still lists it: %v)", err, saveErr)
	}

	return err
}

// DryRun sends the writes as dry-run requests, and returns the error of the
// first that the API server rejects.
func DryRun(ctx context.Context, c client.Client, writes []Write) error {
	try := client.NewDryRunClient(c)
	for _, w := range writes {
		if w.Old != nil && w.Old.ResourceVersion == "" {
			return fmt.Errorf("ConfigMap %s has no resourceVersion: it was not read from the cluster", w.key())
		}
		if _, err := w.send(ctx, try); err != nil {
			return w.explainError(err)
		}
	}

	return nil
}

// carryOut sends a write and returns the resulting ConfigMap, nil if it was
// deleted. After an error that leaves the outcome open, it reads the ConfigMap:
// if that has the desired content, the write succeeded.
func (w Write) carryOut(ctx context.Context, c client.Client) (*corev1.ConfigMap, error) {
	written, err := w.send(ctx, c)
	if err == nil {
		return written, nil
	}

	now, readErr := readConfigMap(ctx, c, w.key())
	switch {
	case readErr != nil && !refused(err):
		// readErr is not wrapped: a rejected read does not mean that the write
		// was rejected.
		return nil, fmt.Errorf("%w (it may have been written nevertheless: %v)", err, readErr)
	case readErr != nil || contentDigest(now) != contentDigest(w.New):
		return nil, err
	}

	return now, nil
}

// send sends the request, with the precondition that the ConfigMap has not
// changed since it was read.
func (w Write) send(ctx context.Context, c client.Client) (*corev1.ConfigMap, error) {
	switch {
	case w.Old == nil:
		cm := withoutServerFields(w.New)
		return cm, c.Create(ctx, cm)
	case w.New == nil:
		return nil, c.Delete(ctx, w.Old.DeepCopy(), client.Preconditions{UID: &w.Old.UID, ResourceVersion: &w.Old.ResourceVersion})
	default:
		cm := w.Old.DeepCopy()
		replaceContent(cm, w.New)
		return cm, c.Update(ctx, cm)
	}
}

// explainError adds to the error of a write what it means and what to do next.
func (w Write) explainError(err error) error {
	switch {
	case apierrors.IsAlreadyExists(err), w.Old != nil && apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return fmt.Errorf("ConfigMap %s was changed in the meantime (%w): run the command again to see the changes", w.key(), err)
	case apierrors.IsInvalid(err) && w.Old != nil && w.Old.Immutable != nil && *w.Old.Immutable:
		return fmt.Errorf("ConfigMap %s is immutable (%w): delete it, create it again without immutable: true, and run the command again",
			w.key(), err)
	}

	return fmt.Errorf("ConfigMap %s cannot be written: %w: fix that and run the command again", w.key(), err)
}

// refused reports whether an error is an API server's answer that it did
// nothing; other errors leave that open.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500
}

// Name returns the ConfigMap's name.
func (w Write) Name() string { return w.key().Name }

func (w Write) key() client.ObjectKey {
	if w.Old != nil {
		return client.ObjectKeyFromObject(w.Old)
	}

	return client.ObjectKeyFromObject(w.New)
}

// readConfigMap returns the current ConfigMap; nil if it does not exist.
func readConfigMap(ctx context.Context, c client.Reader, key client.ObjectKey) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	found, err := getObject(ctx, c, "ConfigMap", key, cm)
	if !found {
		return nil, err
	}

	return cm, nil
}

// replaceContent copies data, binaryData and signatures to a ConfigMap.
func replaceContent(cm, content *corev1.ConfigMap) {
	cm.Data, cm.BinaryData = maps.Clone(content.Data), maps.Clone(content.BinaryData)
	Unsign(cm)
	for _, annotation := range signatures {
		if signature, found := content.Annotations[annotation]; found {
			metav1.SetMetaDataAnnotation(&cm.ObjectMeta, annotation, signature)
		}
	}
}

// withoutServerFields returns a ConfigMap without the fields that the API
// server sets; nil for nil.
func withoutServerFields(cm *corev1.ConfigMap) *corev1.ConfigMap {
	if cm == nil {
		return nil
	}

	cm = cm.DeepCopy()

	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name, Labels: cm.Labels, Annotations: cm.Annotations},
		Immutable:  cm.Immutable, Data: cm.Data, BinaryData: cm.BinaryData,
	}
}

// contentDigest returns a digest of the fields that replaceContent copies,
// "absent" for nil. Records contain it, so it must not change from version to
// version.
func contentDigest(cm *corev1.ConfigMap) string {
	if cm == nil {
		return "absent"
	}

	digest := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		fmt.Fprintf(digest, "data %x %x\n", key, cm.Data[key])
	}

	for _, key := range slices.Sorted(maps.Keys(cm.BinaryData)) {
		fmt.Fprintf(digest, "binaryData %x %x\n", key, cm.BinaryData[key])
	}

	for _, annotation := range signatures {
		if signature, found := cm.Annotations[annotation]; found {
			fmt.Fprintf(digest, "annotation %x %x\n", annotation, signature)
		}
	}

	return fmt.Sprintf("sha256:%x", digest.Sum(nil))
}
