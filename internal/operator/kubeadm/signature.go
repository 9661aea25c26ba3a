// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations with the signature of a generated configuration: the proposal's
// and kubeadm's.
const (
	ProposalSignature = "kubeadm.kubernetes.io/autogen-checksum"
	KubeadmSignature  = "kubeadm.kubernetes.io/component-config.hash"
)

var signatures = []string{ProposalSignature, KubeadmSignature}

// Origin says who wrote a component's configuration.
type Origin string

const (
	// Generated configurations have at least one signature, and all are valid.
	// They can be generated again.
	Generated Origin = "generated"
	// UserSupplied configurations have no signature.
	UserSupplied Origin = "user-supplied"
	// UserModified configurations have an invalid signature: a user edited a
	// generated configuration.
	UserModified Origin = "user-modified"
)

// Signature returns the signature of a ConfigMap's content: "sha256:" and the
// hex digest over the values of data, in the lexical order of their keys,
// followed by those of binaryData, decoded (proposal: "User supplied vs kubeadm
// generated component configs").
func Signature(cm *corev1.ConfigMap) string {
	digest := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		digest.Write([]byte(cm.Data[key]))
	}

	for _, key := range slices.Sorted(maps.Keys(cm.BinaryData)) {
		digest.Write(cm.BinaryData[key])
	}

	return fmt.Sprintf("sha256:%x", digest.Sum(nil))
}

// Sign marks a ConfigMap's content as generated.
func Sign(cm *corev1.ConfigMap) {
	for _, annotation := range signatures {
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, annotation, Signature(cm))
	}
}

// Unsign marks a ConfigMap's content as supplied by a user.
func Unsign(cm *corev1.ConfigMap) {
	for _, annotation := range signatures {
		delete(cm.Annotations, annotation)
	}
}

var wellFormed = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// OriginOf returns the origin of a ConfigMap's content, and the reason.
func OriginOf(cm *corev1.ConfigMap) (Origin, string) {
	signed := false
	for _, annotation := range signatures {
		signature, found := cm.Annotations[annotation]
		switch {
		case !found:
		case !wellFormed.MatchString(signature):
			return UserModified, fmt.Sprintf("its annotation %s is not a signature (sha256: and 64 hex digits)", annotation)
		case signature != Signature(cm):
			return UserModified, fmt.Sprintf("its annotation %s does not match its content: the content was edited after it was generated",
				annotation)
		default:
			signed = true
		}
	}

	if !signed {
		return UserSupplied, "it has no signature"
	}

	return Generated, "its signature is valid"
}
