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
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A record is a ConfigMap of this label, and of this name with a number, that says in data what it is of, and in
// binaryData, as compressed JSON, what was there before. Others than the newest are kept for further undos.
const (
	LabelUndoRecord = "evenkeel.dev/upgrade-record"
	recordPrefix    = "evenkeel-upgrade-"
	recordFormat    = "1"
	maxUndoRecords  = 10

	keyFormat   = "format"
	keyWhy      = "why"
	keyTime     = "time"
	keyProgress = "progress"
	keySaved    = "saved.json.gz"
)

// How far a Store has come.
const (
	progressStarted = "begun"   // its writes are made, or it was interrupted
	progressStopped = "stopped" // a write was refused; those that were made are saved
	progressApplied = "applied" // every write was made
)

// UndoRecord is what is kept of a Store, for undo.
type UndoRecord struct {
	Name string    // of the ConfigMap that holds it
	Why  string    // what the Store was for
	Time time.Time // of the Store, or of the last that carried it on

	progress string
	saved    []savedConfigMap  // in the order of the writes
	stored   *corev1.ConfigMap // as it was read or written last; nil: not yet
}

// String says what was done, and when.
func (r *UndoRecord) String() string {
	return fmt.Sprintf("the apply of %s at %s", cmp.Or(r.Why, "no version"), r.Time.Format(time.RFC3339))
}

// savedConfigMap is what a record has of one ConfigMap. Its JSON is read by other versions.
type savedConfigMap struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Before    *corev1.ConfigMap `json:"before"`  // null: there was none
	Written   []string          `json:"written"` // the states that it was given, or was to be given; the last is what is wanted
}

func (s *savedConfigMap) key() client.ObjectKey {
	return client.ObjectKey{Namespace: s.Namespace, Name: s.Name}
}

// LatestUndoRecord returns the newest record, the one that undo is about; nil if there is none. A record that cannot be read, or that
// another version wrote in a format that this one does not know, is an error that names it.
func LatestUndoRecord(ctx context.Context, c client.Client) (*UndoRecord, error) {
	all, err := listUndoRecords(ctx, c)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return decode(&all[len(all)-1])
}

var recordName = regexp.MustCompile(`^` + recordPrefix + `([0-9]{5,9})$`)

// numberOf returns the number of a record; 0 of what has no record's name.
func numberOf(cm *corev1.ConfigMap) int {
	parts := recordName.FindStringSubmatch(cm.Name)
	if parts == nil {
		return 0
	}
	n, _ := strconv.Atoi(parts[1]) // digits, and few
	return n
}

// listUndoRecords returns the ConfigMaps of all records, the oldest first. Copies that somebody made by other names are none.
func listUndoRecords(ctx context.Context, c client.Client) ([]corev1.ConfigMap, error) {
	list := &corev1.ConfigMapList{}
	if err := c.List(ctx, list, client.InNamespace(metav1.NamespaceSystem), client.HasLabels{LabelUndoRecord}); err != nil {
		return nil, fmt.Errorf("list the records of upgrades in %s: %w", metav1.NamespaceSystem, err)
	}
	all := slices.DeleteFunc(list.Items, func(cm corev1.ConfigMap) bool { return numberOf(&cm) == 0 })
	slices.SortFunc(all, func(a, b corev1.ConfigMap) int { return numberOf(&a) - numberOf(&b) })
	return all, nil
}

// planWrite notes what a ConfigMap is going to be. What the record has saved of it stays saved.
func (r *UndoRecord) planWrite(key client.ObjectKey, old, wanted *corev1.ConfigMap) {
	i := slices.IndexFunc(r.saved, func(s savedConfigMap) bool { return s.key() == key })
	if i < 0 {
		r.saved = append(r.saved, savedConfigMap{Namespace: key.Namespace, Name: key.Name, Before: withoutServerFields(old)})
		i = len(r.saved) - 1
	}
	// What was wanted earlier may be what is there until that is written.
	written := slices.DeleteFunc(r.saved[i].Written, func(s string) bool { return s == contentDigest(wanted) })
	r.saved[i].Written = append(written, contentDigest(wanted))
}

// dropWrite takes out a write that was not made, unless an earlier one was, of the same ConfigMap.
func (r *UndoRecord) dropWrite(w Write) {
	r.saved = slices.DeleteFunc(r.saved, func(s savedConfigMap) bool {
		return s.key() == w.key() && !slices.Contains(s.Written, contentDigest(w.Old))
	})
}

// readConfigMaps reads the ConfigMaps of a record as they are now; those that are absent are nil.
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

// interrupted tells whether a Store is to carry this one on: it has not made every write, and nobody else has had a hand
// in the ConfigMaps since.
func (r *UndoRecord) interrupted(now map[client.ObjectKey]*corev1.ConfigMap) bool {
	complete := r.progress == progressStarted
	for _, s := range r.saved {
		there := contentDigest(now[s.key()])
		if there != contentDigest(s.Before) && !slices.Contains(s.Written, there) {
			return false
		}
		complete = complete && there == s.Written[len(s.Written)-1]
	}
	return !complete && r.progress != progressApplied
}

// save stores the record, if nobody else has changed it since it was read. One that has nothing saved is deleted. One that
// was deleted meanwhile, by an undo that ran at the same time, is made again: it has what was there before.
func (r *UndoRecord) save(ctx context.Context, c client.Client) error {
	w := Write{Old: r.stored}
	if len(r.saved) > 0 {
		var err error
		if w.New, err = r.encode(); err != nil {
			return err
		}
	}
	there, err := w.carryOut(ctx, c)
	if apierrors.IsNotFound(err) && r.stored != nil {
		there, err = Write{New: w.New}.carryOut(ctx, c)
	}
	if err != nil {
		return r.explainSaveError(err)
	}
	r.stored = there
	return nil
}

// explainSaveError says what a failure to write the record means, and what to do next.
func (r *UndoRecord) explainSaveError(err error) error {
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: r.Name}
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("ConfigMap %s is there already (%w): if no other apply runs at the same time, "+
			"and its label %s is missing, give it that back; then run it again", key, err, LabelUndoRecord)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return fmt.Errorf("record %s was changed by another apply or undo at the same time (%w): run it again when that has ended", key, err)
	}
	return fmt.Errorf("record %s cannot be written: %w: run it again when that is mended", key, err)
}

// prune deletes the oldest of the records that are older than the newest one.
func prune(ctx context.Context, c client.Client, older []corev1.ConfigMap) error {
	for i := range older[:max(0, len(older)-(maxUndoRecords-1))] {
		w := Write{Old: &older[i]}
		if _, err := w.carryOut(ctx, c); err != nil {
			return w.explainError(err)
		}
	}
	return nil
}

// encode returns the ConfigMap that holds the record. It is an error if it does not fit into one.
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
		return nil, fmt.Errorf("what was there before has %d bytes, compressed, and a ConfigMap, to keep it for undo, holds %d: "+
			"change fewer or smaller ConfigMaps at a time", size, corev1.MaxSecretSize)
	}
	return cm, nil
}

// decode reads what encode wrote.
func decode(cm *corev1.ConfigMap) (*UndoRecord, error) {
	key := client.ObjectKeyFromObject(cm)
	if format := cm.Data[keyFormat]; format != recordFormat {
		return nil, fmt.Errorf("record %s has format %q, and this version knows %q: use the kubectl evenkeel that wrote it", key, format, recordFormat)
	}
	r := &UndoRecord{Name: cm.Name, Why: cm.Data[keyWhy], progress: cm.Data[keyProgress], stored: cm}
	var errs [2]error
	r.Time, errs[0] = time.Parse(time.RFC3339Nano, cm.Data[keyTime])
	r.saved, errs[1] = decodeSaved(cm.BinaryData[keySaved])
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("record %s is broken (%w): restore it, or give up what it saved with: kubectl -n %s delete configmap %s",
			key, err, cm.Namespace, cm.Name)
	}
	return r, nil
}

// maxSaved is the largest text that a record may hold, uncompressed: ConfigMaps of 1 MiB as they were and as they are
// wanted, of kubeadm and of each component.
const maxSaved = 16 << 20

func decodeSaved(compressed []byte) ([]savedConfigMap, error) {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keySaved, err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxSaved+1))
	if err == nil && len(text) > maxSaved {
		err = fmt.Errorf("larger than %d MiB", maxSaved>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keySaved, err)
	}
	var all []savedConfigMap
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", keySaved, err)
	}
	for _, s := range all {
		if s.Namespace == "" || s.Name == "" || len(s.Written) == 0 {
			return nil, fmt.Errorf("%s: an entry says not what it is of", keySaved)
		}
	}
	return all, nil
}
