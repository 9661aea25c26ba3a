package kubeadm

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The annotations that hold the signature of a generated configuration: the proposal's, and the one that kubeadm writes.
const (
	ProposalSignature = "kubeadm.kubernetes.io/autogen-checksum"
	KubeadmSignature  = "kubeadm.kubernetes.io/component-config.hash"
)

// Origin tells who wrote a component's configuration.
type Origin string

const (
	// Generated configurations have a signature, and every one that they have is right: they can be generated anew.
	Generated Origin = "generated"
	// UserSupplied configurations have none.
	UserSupplied Origin = "user-supplied"
	// UserModified configurations have a signature that is wrong: a user edited what was generated.
	UserModified Origin = "user-modified"
)

// Signature returns the signature of what a ConfigMap holds: "sha256:" and the hex digest over the values of data, in the
// lexical order of their keys, and then those of binaryData, decoded (proposal: "User supplied vs kubeadm generated
// component configs").
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

// Sign marks what a ConfigMap holds as generated.
func Sign(cm *corev1.ConfigMap) {
	if cm.Annotations == nil {
		cm.Annotations = map[string]string{}
	}
	cm.Annotations[ProposalSignature] = Signature(cm)
	cm.Annotations[KubeadmSignature] = Signature(cm)
}

// Unsign marks what a ConfigMap holds as supplied by a user.
func Unsign(cm *corev1.ConfigMap) {
	delete(cm.Annotations, ProposalSignature)
	delete(cm.Annotations, KubeadmSignature)
}

var wellFormed = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// OriginOf tells who wrote what a ConfigMap holds, and how that was seen.
func OriginOf(cm *corev1.ConfigMap) (Origin, string) {
	signed := false
	for _, annotation := range []string{ProposalSignature, KubeadmSignature} {
		signature, there := cm.Annotations[annotation]
		switch {
		case !there:
		case !wellFormed.MatchString(signature):
			return UserModified, fmt.Sprintf("its annotation %s is no signature, which is sha256: and 64 hex digits", annotation)
		case signature != Signature(cm):
			return UserModified, fmt.Sprintf("its annotation %s does not fit its content: it was edited since it was generated", annotation)
		default:
			signed = true
		}
	}
	if !signed {
		return UserSupplied, "it has no signature"
	}
	return Generated, "its signature is right"
}
