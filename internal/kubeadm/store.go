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

// Write is a ConfigMap that changes. Of one that exists, data, binaryData and signatures are written; its labels and its
// other annotations stay as they are.
type Write struct {
	Old *corev1.ConfigMap // as it was read; nil: there was none
	New *corev1.ConfigMap // nil: it is deleted
}

// Store writes ConfigMaps in their order, each at most once, so that undo can restore what was there before. why stands in
// the record: what the writes are for, such as "v1.37.0". Writes that change nothing are passed over; if there are no
// others, nothing is recorded.
//
// Nothing is written if the API server would refuse one of them. A ConfigMap that was changed since it was read is an error
// that names it; what was written before it stays and is part of what undo restores. After any error, and after an end at
// any point, the same or another Store carries on: undo restores what was there before the first.
func Store(ctx context.Context, c client.Client, why string, writes []Write) error {
	writes = slices.DeleteFunc(slices.Clone(writes), func(w Write) bool { return contentDigest(w.Old) == contentDigest(w.New) })
	if len(writes) == 0 {
		return nil
	}
	// From here on it is quicker to finish than to find out how far it came.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	ctx, cancel := withoutCancel(ctx)
	defer cancel()
	r, older, err := newUndoRecord(ctx, c, why, writes)
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
		return fmt.Errorf("everything was written, but its record could not be completed: %w", err)
	}
	if err := prune(ctx, c, older); err != nil {
		return fmt.Errorf("everything was written, but an old record is left: %w", err)
	}
	return nil
}

// withoutCancel is a context that does not end with ctx, but after a time in which any API server answers that does.
func withoutCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
}

// newUndoRecord returns the record of writes that are about to be made, and the records of earlier ones, the oldest first. It is
// the record of an apply that was interrupted, if the newest is that: what it saved is what undo is to restore.
func newUndoRecord(ctx context.Context, c client.Client, why string, writes []Write) (r *UndoRecord, older []corev1.ConfigMap, err error) {
	if older, err = listUndoRecords(ctx, c); err != nil {
		return nil, nil, err
	}
	number := 1
	if last := len(older) - 1; last >= 0 {
		newest, err := decode(&older[last])
		if err != nil {
			return nil, nil, err
		}
		number = numberOf(newest.stored) + 1
		now, err := newest.readConfigMaps(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		if newest.interrupted(now) {
			r, older = newest, older[:last]
			for key, cm := range now { // what these writes leave alone is wanted as it is
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
	return r, older, nil
}

// fail completes the error of a write that failed, the first of those that are not carried out. What was refused for
// certain is taken out of the record, so that undo does not take for an edit of what was written what was never written.
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
		return fmt.Errorf("%w (and its record lists it all the same: %v)", err, saveErr)
	}
	return err
}

// DryRun has the API server try writes without carrying them out. The error is of the first that it refuses.
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

// carryOut makes a write, and returns the ConfigMap as it is then: nil if there is none. A failure that leaves it open
// whether the write was made is none if a look shows that it was.
func (w Write) carryOut(ctx context.Context, c client.Client) (*corev1.ConfigMap, error) {
	written, err := w.send(ctx, c)
	if err == nil {
		return written, nil
	}
	now, readErr := readConfigMap(ctx, c, w.key())
	switch {
	case readErr != nil && !refused(err):
		// Only one is wrapped: that the look was refused does not mean that the write was.
		return nil, fmt.Errorf("%w (it may have been all the same: %v)", err, readErr)
	case readErr != nil || contentDigest(now) != contentDigest(w.New):
		return nil, err
	}
	return now, nil
}

// send makes the request, on condition that the ConfigMap is still the one that was read.
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

// explainError says what a failure means, and what to do next.
func (w Write) explainError(err error) error {
	const next = "run it again to see what changes now"
	var verb string
	switch {
	case w.Old == nil:
		verb = "created"
		if apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("ConfigMap %s was created by somebody else since it was looked for (%w): %s", w.key(), err, next)
		}
	case apierrors.IsNotFound(err):
		return fmt.Errorf("ConfigMap %s was deleted by somebody else since it was read (%w): %s", w.key(), err, next)
	case apierrors.IsConflict(err):
		return fmt.Errorf("ConfigMap %s was changed by somebody else since it was read (%w): %s", w.key(), err, next)
	case w.New == nil:
		verb = "deleted"
	case apierrors.IsInvalid(err) && w.Old.Immutable != nil && *w.Old.Immutable:
		return fmt.Errorf("ConfigMap %s is immutable (%w): delete it, create it again without immutable: true, and run this again", w.key(), err)
	default:
		verb = "updated"
	}
	return fmt.Errorf("ConfigMap %s cannot be %s: %w: run it again when that is mended", w.key(), verb, err)
}

// refused tells a failure that is the API server's word that nothing was done from one that leaves it open.
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

// readConfigMap returns a ConfigMap as it is now; nil if there is none.
func readConfigMap(ctx context.Context, c client.Reader, key client.ObjectKey) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	there, err := getObject(ctx, c, "ConfigMap", key, cm)
	if !there {
		return nil, err
	}
	return cm, nil
}

var signatures = []string{ProposalSignature, KubeadmSignature}

// replaceContent makes the content of a ConfigMap that of another.
func replaceContent(cm, content *corev1.ConfigMap) {
	cm.Data, cm.BinaryData = maps.Clone(content.Data), maps.Clone(content.BinaryData)
	Unsign(cm)
	for _, annotation := range signatures {
		if signature, there := content.Annotations[annotation]; there {
			if cm.Annotations == nil {
				cm.Annotations = map[string]string{}
			}
			cm.Annotations[annotation] = signature
		}
	}
}

// withoutServerFields returns what a user could have created of a ConfigMap: nothing that the API server adds; nil of nil.
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

// contentDigest returns a digest of what put copies, by which records know it again; it must not change from version to version.
// That of no ConfigMap, nil, is "absent".
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
		if signature, there := cm.Annotations[annotation]; there {
			fmt.Fprintf(digest, "annotation %x %x\n", annotation, signature)
		}
	}
	return fmt.Sprintf("sha256:%x", digest.Sum(nil))
}
