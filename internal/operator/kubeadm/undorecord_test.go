// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheNewestTenRecordsAreKept(t *testing.T) {
	c := world(t, contents{"kubelet-config": "0"})
	var want []string
	for i := 1; i <= 12; i++ {
		store(t, c, fmt.Sprintf("v1.%d", i), contents{"kubelet-config": fmt.Sprint(i)})
		want = append(want, fmt.Sprintf("%05d v1.%d applied", i, i))
	}

	recorded(t, c, want[2:]...)
	for range maxUndoRecords {
		assert.NoError(t, undo(t.Context(), c, false))
	}

	has(t, c, contents{"kubelet-config": "2"})
}

func TestAnOldRecordWhoseDeletionFailsIsNamedAndDeletedLater(t *testing.T) {
	c := world(t, contents{"kubelet-config": "0"})
	for i := 1; i <= maxUndoRecords; i++ {
		store(t, c, fmt.Sprintf("v1.%d", i), contents{"kubelet-config": fmt.Sprint(i)})
	}

	cut := between(t, "evenkeel-component-00001", func() error { return errors.New("gone") })
	says(t, Store(t.Context(), cut, "v1.11", to(t, c, contents{"kubelet-config": "11"})),
		"everything was written, but an old undo record could not be deleted: ConfigMap kube-system/evenkeel-component-00001 cannot be written: ", "gone")
	store(t, c, "v1.12", contents{"kubelet-config": "12"})
	all := assert.Value(listUndoRecords(t.Context(), c))(t)
	assert.That(t, len(all) == maxUndoRecords && all[0].Name == "evenkeel-component-00003",
		"%d records, the first is %s", len(all), all[0].Name)
}

func TestACopyOfARecordUnderAnotherNameIsIgnored(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "b"})
	r := assert.Value(LatestUndoRecord(t.Context(), c))(t)
	theirs := withoutServerFields(r.stored)
	theirs.Name = "evenkeel-component-copy"
	assert.NoError(t, c.Create(t.Context(), theirs))
	recorded(t, c, "00001 v1.37.0 applied")
}

func TestARecordWithoutItsLabelIsNamed(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "b"})
	edit(t, c, "evenkeel-component-00001", func(cm *corev1.ConfigMap) { cm.Labels = nil })
	says(t, Store(t.Context(), c, "v1.38.0", to(t, c, contents{"kubelet-config": "c"})),
		"nothing was written: ConfigMap kube-system/evenkeel-component-00001 already exists", "lacks the label evenkeel.dev/component-record, add the label")
	has(t, c, contents{"kubelet-config": "b"})
	edit(t, c, "evenkeel-component-00001", func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{LabelUndoRecord: ""} })
	store(t, c, "v1.38.0", contents{"kubelet-config": "c"})
}

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	assert.NoError(t, errors.Join(err, z.Close()))

	return b.Bytes()
}

func TestADamagedRecordIsNamedAndNothingIsWritten(t *testing.T) {
	const giveUp = "discard what it saved with: kubectl -n kube-system delete configmap evenkeel-component-00001"
	saved := func(change func([]byte) []byte) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) { cm.BinaryData["saved.json.gz"] = change(cm.BinaryData["saved.json.gz"]) }
	}
	holds := func(text string) func(*corev1.ConfigMap) {
		return saved(func([]byte) []byte { return zipped(t, text) })
	}
	for _, tt := range []struct {
		name  string
		harm  func(*corev1.ConfigMap)
		words []string
	}{
		{"another format", func(cm *corev1.ConfigMap) { cm.Data["format"] = "2" },
			[]string{`record kube-system/evenkeel-component-00001 has format "2", this version supports "1": use the version of kubectl evenkeel that wrote it`}},
		{"no time", func(cm *corev1.ConfigMap) { cm.Data["time"] = "noon" }, []string{"evenkeel-component-00001 is damaged", `"noon"`, giveUp}},
		{"not there", func(cm *corev1.ConfigMap) { cm.BinaryData = nil }, []string{"is damaged (saved.json.gz: EOF)", giveUp}},
		{"cut off", saved(func(b []byte) []byte { return b[:len(b)/2] }), []string{"is damaged (saved.json.gz: unexpected EOF)", giveUp}},
		{"a bit flipped", saved(func(b []byte) []byte { b[len(b)-6] ^= 1; return b }), []string{"is damaged (saved.json.gz: gzip: invalid checksum)", giveUp}},
		{"no JSON", holds("{"), []string{"is damaged (saved.json.gz: unexpected end of JSON input)", giveUp}},
		{"an empty entry", holds("[{}]"), []string{"is damaged (saved.json.gz: an entry does not name its object)", giveUp}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := world(t, contents{"kubelet-config": "a"})
			store(t, c, "v1.37.0", contents{"kubelet-config": "b"})
			edit(t, c, "evenkeel-component-00001", tt.harm)
			says(t, undo(t.Context(), c, false), tt.words...)
			says(t, Store(t.Context(), c, "v1.38.0", to(t, c, contents{"kubelet-config": "c"})), append(tt.words, "nothing was written: ")...)
			has(t, c, contents{"kubelet-config": "b"})
		})
	}
}

// What older versions wrote must be known again by newer ones: the digest stays
// what it is.
func TestTheDigestOfAConfigMapNeverChanges(t *testing.T) {
	all := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "any", Labels: map[string]string{"any": "any"},
			Annotations: map[string]string{ProposalSignature: "x", KubeadmSignature: "", "any": "any"},
		},
		Data: map[string]string{"b": "", "a": "1"}, BinaryData: map[string][]byte{"c": {0, 255}},
	}
	assert.Equal(t, contentDigest(nil), "absent")
	assert.Equal(t, contentDigest(&corev1.ConfigMap{}), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
	assert.Equal(t, contentDigest(all), "sha256:59a4b791d004eac9fae6f3b2fcbf2ed84f7bc5f530f0169362c37b39d57ff12f")
}

func TestTheUncompressedSizeOfARecordIsLimited(t *testing.T) {
	large := zipped(t, strings.Repeat(" ", maxSaved+1))
	assert.Error(t, assert.Err(decodeSaved(large)), "saved.json.gz: larger than 16 MiB", len(large), "bytes")
}

func TestUndoNamesAllEditedConfigMapsAndOverwritesThemOnRequest(t *testing.T) {
	before := contents{"kubelet-config": "a", "kube-proxy": "b", "kubeadm-config": "c"}
	c := world(t, before)
	store(t, c, "v1.37.0", contents{"kubelet-config": "a2", "kube-proxy": "b2", "kubeadm-config": "c2"})
	replace(t, c, "kubelet-config", "theirs")
	assert.NoError(t, c.Delete(t.Context(), configMap("kubeadm-config", "")))
	says(t, undo(t.Context(), c, false), "changed since the apply of v1.37.0 at 2",
		"ConfigMap kube-system/kubeadm-config, kube-system/kubelet-config: ", "--overwrite")
	has(t, c, contents{"kubelet-config": "theirs", "kube-proxy": "b2"})
	recorded(t, c, "00001 v1.37.0 applied")

	assert.NoError(t, undo(t.Context(), c, true))
	has(t, c, before)
	recorded(t, c)
}

// That somebody restored by hand what an apply had changed does not make it one
// that was interrupted.
func TestAnApplyAfterARestoreByHandHasItsOwnRecord(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a", "kube-proxy": "b"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a2", "kube-proxy": "b2"})
	replace(t, c, "kubelet-config", "a")
	store(t, c, "v1.38.0", contents{"kube-proxy": "b3"})
	recorded(t, c, "00001 v1.37.0 applied", "00002 v1.38.0 applied")
	assert.NoError(t, undo(t.Context(), c, false))
	has(t, c, contents{"kubelet-config": "a", "kube-proxy": "b2"})
	assert.NoError(t, undo(t.Context(), c, false)) // it skips what was restored by hand
	has(t, c, contents{"kubelet-config": "a", "kube-proxy": "b"})
}

func TestUndoKeepsLabelsAndAnnotationsSetSince(t *testing.T) {
	c := world(t, contents{"kubelet-config": "user's"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a"})
	edit(t, c, "kubelet-config", func(cm *corev1.ConfigMap) { cm.Labels["their"], cm.Annotations["their"] = "label", "annotation" })
	assert.NoError(t, undo(t.Context(), c, false))
	cm := snapshot(t, c)["kubelet-config"]
	assert.That(t, cm.Data["config"] == "user's" && cm.Labels["their"] == "label" && cm.Annotations["their"] == "annotation" && len(cm.Annotations) == 2,
		"not as it was, with what others have set: %+v", cm)
}

func TestAnUndoThatConflictsWithAnEditFailsAndKeepsItsRecord(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a", "kube-proxy": "b"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a2", "kube-proxy": "b2"})
	says(t, undo(t.Context(), late(t, c, "kubelet-config", "theirs"), false),
		"1 of 2 ConfigMaps were restored: ConfigMap kube-system/kubelet-config was changed in the meantime")
	has(t, c, contents{"kubelet-config": "theirs", "kube-proxy": "b"})
	recorded(t, c, "00001 v1.37.0 applied")
}

func TestAnUndoThatConflictsWithAnotherRestoresNothing(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a2"})
	r := assert.Value(LatestUndoRecord(t.Context(), c))(t)
	writes := assert.Value(r.Undo(t.Context(), c, false))(t)
	assert.NoError(t, undo(t.Context(), c, false))
	says(t, Restore(t.Context(), c, r, writes),
		"nothing was restored: record kube-system/evenkeel-component-00001 was changed by a concurrent apply or undo", "run the command again")
	has(t, c, contents{"kubelet-config": "a"})
}

func TestAnUndoThatCannotDeleteItsRecordExplainsTheConsequence(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a2"})
	cut := between(t, "evenkeel-component-00001", func() error { return errors.New("gone") })
	says(t, undo(t.Context(), cut, false),
		"everything was restored, but undo record evenkeel-component-00001 may still exist; the next undo then has nothing to do: ", "gone")
	has(t, c, contents{"kubelet-config": "a"})
	assert.NoError(t, undo(t.Context(), c, false))
	has(t, c, contents{"kubelet-config": "a"})
	recorded(t, c)
}
