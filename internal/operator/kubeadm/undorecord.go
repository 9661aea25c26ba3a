// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An undo record is a ConfigMap with this label, named by this prefix and a
// number. Its data describes the Store; its binaryData holds the previous
// ConfigMaps as compressed JSON. Older records are kept, so that undo can be
// repeated.
const (
	LabelUndoRecord = "evenkeel.dev/component-record"
	recordPrefix    = "evenkeel-component-"
	recordFormat    = "1"
	maxUndoRecords  = 10

	keyFormat   = "format"
	keyWhy      = "why"
	keyTime     = "time"
	keyProgress = "progress"
	keySaved    = "saved.json.gz"
)

// The progress of a Store.
const (
	progressStarted = "begun"   // its writes are in progress, or it was interrupted
	progressStopped = "stopped" // a write was rejected; the record has those before it
	progressApplied = "applied" // all writes are done
)

// UndoRecord holds what a Store replaced.
type UndoRecord struct {
	Name string    // of the record's ConfigMap
	Why  string    // the Store's argument why
	Time time.Time // of the Store, or of the last one that continued it

	progress string
	saved    []savedConfigMap  // in the order of the writes
	stored   *corev1.ConfigMap // as last read or written; nil before that
}

// String describes the Store and its time.
func (r *UndoRecord) String() string {
	return fmt.Sprintf("the apply of %s at %s", cmp.Or(r.Why, "no version"), r.Time.Format(time.RFC3339))
}

// savedConfigMap is one ConfigMap in a record. Other versions read its JSON.
type savedConfigMap struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Before    *corev1.ConfigMap `json:"before"`  // null if it did not exist
	Written   []string          `json:"written"` // digests of the contents written or about to be written; the last one is the desired content
}

func (s *savedConfigMap) key() client.ObjectKey {
	return client.ObjectKey{Namespace: s.Namespace, Name: s.Name}
}

// LatestUndoRecord returns the newest record, which undo restores; nil if there
// is none. It fails if the record cannot be parsed or has an unknown format.
func LatestUndoRecord(ctx context.Context, c client.Client) (*UndoRecord, error) {
	all, err := listUndoRecords(ctx, c)
	if err != nil || len(all) == 0 {
		return nil, err
	}

	return decode(&all[len(all)-1])
}

var recordName = regexp.MustCompile(`^` + recordPrefix + `([0-9]{5,9})$`)

// numberOf returns the number in a record's name; 0 if the ConfigMap is not
// named like a record.
func numberOf(cm *corev1.ConfigMap) int {
	parts := recordName.FindStringSubmatch(cm.Name)
	if parts == nil {
		return 0
	}

	n, _ := strconv.Atoi(parts[1]) // the expression admits only digits that fit

	return n
}

// listUndoRecords returns the ConfigMaps of all records, the oldest first.
// Copies under other names are ignored.
func listUndoRecords(ctx context.Context, c client.Client) ([]corev1.ConfigMap, error) {
	list := &corev1.ConfigMapList{}
	if err := c.List(ctx, list, client.InNamespace(metav1.NamespaceSystem), client.HasLabels{LabelUndoRecord}); err != nil {
		return nil, fmt.Errorf("list the records of upgrades in %s: %w", metav1.NamespaceSystem, err)
	}

	all := slices.DeleteFunc(list.Items, func(cm corev1.ConfigMap) bool { return numberOf(&cm) == 0 })
	slices.SortFunc(all, func(a, b corev1.ConfigMap) int { return numberOf(&a) - numberOf(&b) })

	return all, nil
}

// planWrite adds a ConfigMap's desired content. If the record has the ConfigMap
// already, its saved content stays.
func (r *UndoRecord) planWrite(key client.ObjectKey, old, desired *corev1.ConfigMap) {
	i := slices.IndexFunc(r.saved, func(s savedConfigMap) bool { return s.key() == key })
	if i < 0 {
		r.saved = append(r.saved, savedConfigMap{Namespace: key.Namespace, Name: key.Name, Before: withoutServerFields(old)})
		i = len(r.saved) - 1
	}

	// Earlier desired contents stay listed: one of them may be in the cluster
	// until the new one is written.
	written := slices.DeleteFunc(r.saved[i].Written, func(s string) bool { return s == contentDigest(desired) })
	r.saved[i].Written = append(written, contentDigest(desired))
}

// dropWrite removes a ConfigMap that was not written, unless an earlier Store
// wrote it.
func (r *UndoRecord) dropWrite(w Write) {
	r.saved = slices.DeleteFunc(r.saved, func(s savedConfigMap) bool {
		return s.key() == w.key() && !slices.Contains(s.Written, contentDigest(w.Old))
	})
}

// readConfigMaps reads the current ConfigMaps of a record; missing ones are
// nil.
func (r *UndoRecord) readConfigMaps(ctx context.Context, c client.Client) (map[client.ObjectKey]*corev1.ConfigMap, error) {
	now := map[client.ObjectKey]*corev1.ConfigMap{}
	for _, s := range r.saved {
		cm, err := readConfigMap(ctx, c, s.key())
		if err != nil {
			return nil, err
		}

		now[s.key()] = cm
	}

	return now, nil
}

// interrupted reports whether the next Store continues this one: some writes
// are missing, and nothing else has changed the ConfigMaps since.
func (r *UndoRecord) interrupted(now map[client.ObjectKey]*corev1.ConfigMap) bool {
	complete := r.progress == progressStarted
	for _, s := range r.saved {
		found := contentDigest(now[s.key()])
		if found != contentDigest(s.Before) && !slices.Contains(s.Written, found) {
			return false
		}

		complete = complete && found == s.Written[len(s.Written)-1]
	}

	return !complete && r.progress != progressApplied
}

// save writes the record unless it was changed since it was read. A record
// without ConfigMaps is deleted. A record that a concurrent undo has deleted is
// created again, because it has the only copy of the previous contents.
func (r *UndoRecord) save(ctx context.Context, c client.Client) error {
	w := Write{Old: r.stored}
	if len(r.saved) > 0 {
		var err error
		if w.New, err = r.encode(); err != nil {
			return err
		}
	}

	found, err := w.carryOut(ctx, c)
	if apierrors.IsNotFound(err) && r.stored != nil {
		found, err = Write{New: w.New}.carryOut(ctx, c)
	}
	if err != nil {
		return r.explainSaveError(err)
	}

	r.stored = found

	return nil
}

// explainSaveError adds to the error of writing the record what to do next.
func (r *UndoRecord) explainSaveError(err error) error {
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: r.Name}
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("ConfigMap %s already exists (%w): if no other apply is running and the ConfigMap lacks the label %s, "+
			"add the label; then run the command again", key, err, LabelUndoRecord)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return fmt.Errorf("record %s was changed by a concurrent apply or undo (%w): run the command again when that has ended", key, err)
	}

	return fmt.Errorf("record %s cannot be written: %w: fix that and run the command again", key, err)
}

// prune deletes the oldest records, so that maxUndoRecords remain with the
// newest one.
func prune(ctx context.Context, c client.Client, earlier []corev1.ConfigMap) error {
	for i := range earlier[:max(0, len(earlier)-(maxUndoRecords-1))] {
		w := Write{Old: &earlier[i]}
		if _, err := w.carryOut(ctx, c); err != nil {
			return w.explainError(err)
		}
	}

	return nil
}

// encode returns the record's ConfigMap. It fails if the record does not fit
// into one.
func (r *UndoRecord) encode() (*corev1.ConfigMap, error) {
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	if err := errors.Join(json.NewEncoder(z).Encode(r.saved), z.Close()); err != nil {
		return nil, fmt.Errorf("encode the record: %w", err)
	}

	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: r.Name, Labels: map[string]string{LabelUndoRecord: ""}},
		Data: map[string]string{
			keyFormat: recordFormat, keyWhy: r.Why, keyTime: r.Time.Format(time.RFC3339Nano), keyProgress: r.progress,
		},
		BinaryData: map[string][]byte{keySaved: compressed.Bytes()},
	}
	size := compressed.Len()
	for _, value := range cm.Data {
		size += len(value)
	}

	if size > corev1.MaxSecretSize {
		return nil, fmt.Errorf("the undo record would have %d bytes, compressed (a ConfigMap holds %d): "+
			"change fewer or smaller ConfigMaps at a time", size, corev1.MaxSecretSize)
	}

	return cm, nil
}

// decode parses a ConfigMap that encode returned.
func decode(cm *corev1.ConfigMap) (*UndoRecord, error) {
	key := client.ObjectKeyFromObject(cm)
	if format := cm.Data[keyFormat]; format != recordFormat {
		return nil, fmt.Errorf("record %s has format %q, this version supports %q: use the version of kubectl evenkeel that wrote it", key,
			format, recordFormat)
	}

	r := &UndoRecord{Name: cm.Name, Why: cm.Data[keyWhy], progress: cm.Data[keyProgress], stored: cm}
	var errs [2]error
	r.Time, errs[0] = time.Parse(time.RFC3339Nano, cm.Data[keyTime])
	r.saved, errs[1] = decodeSaved(cm.BinaryData[keySaved])
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("record %s is damaged (%w): restore it, or discard what it saved with: kubectl -n %s delete configmap %s",
			key, err, cm.Namespace, cm.Name)
	}

	return r, nil
}

// maxSaved is the largest size of a record's uncompressed JSON: each ConfigMap
// has at most 1 MiB.
const maxSaved = 16 << 20

func decodeSaved(compressed []byte) ([]savedConfigMap, error) {
	var all []savedConfigMap
	var text []byte
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(z, maxSaved+1))
	}
	if err == nil && len(text) > maxSaved {
		err = fmt.Errorf("larger than %d MiB", maxSaved>>20)
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keySaved, err)
	}

	for _, s := range all {
		if s.Namespace == "" || s.Name == "" || len(s.Written) == 0 {
			return nil, fmt.Errorf("%s: an entry does not name its object", keySaved)
		}
	}

	return all, nil
}

// Undo returns the writes that restore the contents before the record's Store;
// none if they are already there. Labels and other annotations stay. Undo fails
// if ConfigMaps were changed since the Store, and names them, unless overwrite
// is set.
func (r *UndoRecord) Undo(ctx context.Context, c client.Client, overwrite bool) ([]Write, error) {
	now, err := r.readConfigMaps(ctx, c)
	if err != nil {
		return nil, err
	}

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

// Restore sends the writes that Undo returned, and then deletes the record, so
// that the next undo restores the apply before it. Nothing is written if the
// API server rejects one of the writes in a dry run. After an error or an
// interruption, another Undo and Restore continue.
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
