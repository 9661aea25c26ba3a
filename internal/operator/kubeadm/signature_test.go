// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestASignatureIsTheDigestOfTheValuesInTheOrderOfTheirKeys(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cm     corev1.ConfigMap
		digest string // of this text
	}{
		{"nothing", corev1.ConfigMap{}, ""},
		{"keys in lexical order, which is not that of numbers or letters alone",
			corev1.ConfigMap{Data: map[string]string{"b": "3", "a": "2", "a10": "4", "a9": "5", "Z": "1"}}, "12453"},
		{"data before binaryData, whatever their keys",
			corev1.ConfigMap{Data: map[string]string{"z": "1"}, BinaryData: map[string][]byte{"b": []byte("3"), "a": []byte("2")}}, "123"},
		{"binaryData as it is decoded", corev1.ConfigMap{BinaryData: map[string][]byte{"a": {0, 0xff}}}, "\x00\xff"},
		{"values alone: neither keys nor what is around", corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"l": "v"}}, Data: map[string]string{"key": "value"}}, "value"},
	} {
		got, want := Signature(&tt.cm), fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(tt.digest)))
		assert.That(t, got == want, "%s: %s, want %s: the digest of %q", tt.name, got, want, tt.digest)
	}
}

func TestTheOriginOfAConfigMapAndWhy(t *testing.T) {
	cm := corev1.ConfigMap{Data: map[string]string{"kubelet": "maxPods: 110\n"}, BinaryData: map[string][]byte{"b": {0xff}}}
	right := Signature(&cm)
	wrong := Signature(&corev1.ConfigMap{})
	upper := "sha256:" + strings.ToUpper(strings.TrimPrefix(right, "sha256:"))
	const (
		missing  = "-"
		isRight  = "its signature is valid"
		hasNone  = "it has no signature"
		notAs    = "its annotation kubeadm.kubernetes.io/%s is not a signature (sha256: and 64 hex digits)"
		notFit   = "its annotation kubeadm.kubernetes.io/%s does not match its content: the content was edited after it was generated"
		proposal = "autogen-checksum"
		kubeadm  = "component-config.hash"
	)
	for _, tt := range []struct {
		name              string
		proposal, kubeadm string
		want              Origin
		why               string
	}{
		{"both are right", right, right, Generated, isRight},
		{"the proposal's alone", right, missing, Generated, isRight},
		{"kubeadm's alone", missing, right, Generated, isRight},
		{"none", missing, missing, UserSupplied, hasNone},
		{"the proposal's is wrong", wrong, missing, UserModified, fmt.Sprintf(notFit, proposal)},
		{"kubeadm's is wrong", missing, wrong, UserModified, fmt.Sprintf(notFit, kubeadm)},
		{"both are wrong", wrong, wrong, UserModified, fmt.Sprintf(notFit, proposal)},
		{"the proposal's is wrong, kubeadm's right", wrong, right, UserModified, fmt.Sprintf(notFit, proposal)},
		{"kubeadm's is wrong, the proposal's right", right, wrong, UserModified, fmt.Sprintf(notFit, kubeadm)},
		{"upper case", upper, right, UserModified, fmt.Sprintf(notAs, proposal)},
		{"not hex", "sha256:" + strings.Repeat("g", 64), missing, UserModified, fmt.Sprintf(notAs, proposal)},
		{"a digit less", right[:len(right)-1], right, UserModified, fmt.Sprintf(notAs, proposal)},
		{"a line's end", right + "\n", right, UserModified, fmt.Sprintf(notAs, proposal)},
		{"another digest", "sha1:" + strings.TrimPrefix(right, "sha256:"), right, UserModified, fmt.Sprintf(notAs, proposal)},
		{"empty", missing, "", UserModified, fmt.Sprintf(notAs, kubeadm)},
	} {
		cm.Annotations = map[string]string{"another": "annotation"}
		for annotation, signature := range map[string]string{ProposalSignature: tt.proposal, KubeadmSignature: tt.kubeadm} {
			if signature != missing {
				cm.Annotations[annotation] = signature
			}
		}

		got, why := OriginOf(&cm)
		assert.That(t, got == tt.want && why == tt.why, "%s: %s, %q\nwant %s, %q", tt.name, got, why, tt.want, tt.why)
	}
}

func TestASignedConfigMapIsGeneratedUntilItIsEdited(t *testing.T) {
	cm := &corev1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}}
	wantOrigin := func(want Origin, annotations ...string) {
		t.Helper()
		got, why := OriginOf(cm)
		assert.Equal(t, got, want, "because", why)
		assert.NoDiff(t, cmp.Diff(annotations, slices.Sorted(maps.Keys(cm.Annotations))), "annotations")
	}
	Sign(cm)
	wantOrigin(Generated, ProposalSignature, KubeadmSignature)
	cm.Labels, cm.Annotations["mine"] = map[string]string{"a": "b"}, "stays"
	wantOrigin(Generated, ProposalSignature, KubeadmSignature, "mine")
	cm.Data["c"] = "3"
	wantOrigin(UserModified, ProposalSignature, KubeadmSignature, "mine")
	Sign(cm)
	wantOrigin(Generated, ProposalSignature, KubeadmSignature, "mine")
	Unsign(cm)
	wantOrigin(UserSupplied, "mine")
}
