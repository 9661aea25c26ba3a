package kubeadm

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
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
		t.Run(tt.name, func(t *testing.T) {
			got, want := Signature(&tt.cm), fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(tt.digest)))
			assert.That(t, got == want, "%s, want %s: the digest of %q", got, want, tt.digest)
		})
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
		{"kubeadm's in upper case", right, upper, UserModified, fmt.Sprintf(notAs, kubeadm)},
		{"not hex", "sha256:" + strings.Repeat("g", 64), missing, UserModified, fmt.Sprintf(notAs, proposal)},
		{"kubeadm's is not hex", missing, "sha256:" + strings.Repeat("g", 64), UserModified, fmt.Sprintf(notAs, kubeadm)},
		{"a digit less", right[:len(right)-1], right, UserModified, fmt.Sprintf(notAs, proposal)},
		{"a line's end", right + "\n", right, UserModified, fmt.Sprintf(notAs, proposal)},
		{"another digest", "sha1:" + strings.TrimPrefix(right, "sha256:"), right, UserModified, fmt.Sprintf(notAs, proposal)},
		{"empty", missing, "", UserModified, fmt.Sprintf(notAs, kubeadm)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cm.Annotations = map[string]string{"another": "annotation"}
			for annotation, signature := range map[string]string{ProposalSignature: tt.proposal, KubeadmSignature: tt.kubeadm} {
				if signature != missing {
					cm.Annotations[annotation] = signature
				}
			}
			got, why := OriginOf(&cm)
			assert.That(t, got == tt.want && why == tt.why, "%s, %q\nwant %s, %q", got, why, tt.want, tt.why)
		})
	}
}

func TestASignedConfigMapIsGeneratedUntilItIsEdited(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*corev1.ConfigMap)
		want Origin
	}{
		{"not at all", func(*corev1.ConfigMap) {}, Generated},
		{"what is around its content", func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"a": "b"}; cm.Annotations["c"] = "d" }, Generated},
		{"a value", func(cm *corev1.ConfigMap) { cm.Data["a"] += "#" }, UserModified},
		{"a key more", func(cm *corev1.ConfigMap) { cm.Data["c"] = "3" }, UserModified},
		{"a key less", func(cm *corev1.ConfigMap) { delete(cm.Data, "a") }, UserModified},
		{"two values swapped", func(cm *corev1.ConfigMap) { cm.Data["a"], cm.Data["b"] = "2", "1" }, UserModified},
		{"binaryData", func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"a": {0}} }, UserModified},
		{"both signatures removed", Unsign, UserSupplied},
		{"signed again", func(cm *corev1.ConfigMap) { cm.Data["a"] += "#"; Sign(cm) }, Generated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cm := &corev1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}}
			Sign(cm)
			got := slices.Sorted(maps.Keys(cm.Annotations))
			assert.That(t, slices.Equal(got, []string{ProposalSignature, KubeadmSignature}), "signed with %q", got)
			tt.edit(cm)
			if got, why := OriginOf(cm); got != tt.want {
				t.Errorf("%s: %s; want %s", got, why, tt.want)
			}
		})
	}
}

func TestUnsignKeepsOtherAnnotations(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}
	Sign(cm)
	Unsign(cm)
	assert.That(t, len(cm.Annotations) == 1 && cm.Annotations["a"] == "b", "left are %v", cm.Annotations)
	Unsign(&corev1.ConfigMap{}) // nothing to remove
}

func TestUploadsOfTheRealKubeadmAreGenerated(t *testing.T) {
	uploaded := upload(t, localcluster.KubeadmConfig(addressV4, v1beta4("")))
	for _, c := range Components() {
		cm := uploaded[c.ConfigMap]
		got := slices.Collect(maps.Keys(cm.Annotations))
		assert.That(t, slices.Equal(got, []string{KubeadmSignature}), "kubeadm annotates %s with %q", c.ConfigMap, got)
		if got, why := OriginOf(cm); got != Generated {
			t.Errorf("%s: %s: %s", c.ConfigMap, got, why)
		}
		cm.Data[c.Key] += "# a user was here\n"
		if got, why := OriginOf(cm); got != UserModified {
			t.Errorf("%s, edited: %s: %s", c.ConfigMap, got, why)
		}
	}
}

// An upgrade by the real kubeadm reads what the cluster has, and uploads it anew with the target's defaults laid out, signed
// only if it took it for generated.
func TestTheRealKubeadmSeesTheSameOrigin(t *testing.T) {
	upload(t, localcluster.KubeadmConfig(addressV4, v1beta4("")))
	givenControlPlane(t)
	cc := assert.Value(parseClusterConfiguration([]byte(v1beta4(""))))(t)
	for _, tt := range []struct {
		name string
		edit func(c Component, cm *corev1.ConfigMap)
		want Origin
	}{
		{"generated", func(Component, *corev1.ConfigMap) {}, Generated},
		{"user-supplied", func(_ Component, cm *corev1.ConfigMap) { Unsign(cm) }, UserSupplied},
		{"user-modified", func(c Component, cm *corev1.ConfigMap) { cm.Data[c.Key] += "enableContentionProfiling: false\n" }, UserModified},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, c := range Components() {
				cm := assert.Value(generate(c, cc, addressV4+":6443"))(t)
				tt.edit(c, cm)
				got, why := OriginOf(cm)
				assert.Must(t, got == tt.want, "%s: %s: %s", c.Name, got, why)
				assert.NoError(t, admin.Update(t.Context(), cm))
			}
			err := cluster.Kubeadm(t.Context(), "", "upgrade apply phase upload-config kubelet v1.37.2", "upgrade apply phase addon kube-proxy v1.37.2")
			assert.NoError(t, err)
			after := configMaps(t)
			for _, c := range Components() {
				cm := after[c.ConfigMap]
				if !strings.Contains(cm.Data[c.Key], `0s`) {
					t.Errorf("kubeadm did not upload %s:\n%s", c.ConfigMap, cm.Data[c.Key])
				}
				// kubeadm knows no third origin, and keeps no annotation that is not its own.
				want := tt.want
				if want == UserModified {
					want = UserSupplied
				}
				got, why := OriginOf(cm)
				assert.That(t, got == want, "%s: after kubeadm's upgrade %s: %s; want %s", c.Name, got, why, want)
				assert.Equal(t, cm.Annotations[ProposalSignature], "", c.Name, "kubeadm kept")
			}
		})
	}
}

// givenControlPlane creates what an upgrade by kubeadm looks for: this machine's Node, and the API server's pod on it.
func givenControlPlane(t *testing.T) {
	t.Helper()
	host := assert.Value(os.Hostname())(t)
	host = strings.ToLower(host)
	for _, o := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:        host,
			Labels:      map[string]string{corev1.LabelHostname: host}, // kubeadm waits for it
			Annotations: map[string]string{"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock"},
		}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "default"}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceSystem, Name: "kube-apiserver",
				Labels:      map[string]string{"component": "kube-apiserver", "tier": "control-plane"},
				Annotations: map[string]string{"kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint": addressV4 + ":6443"},
			},
			Spec: corev1.PodSpec{
				NodeName:                     host,
				Containers:                   []corev1.Container{{Name: "kube-apiserver", Image: "registry.k8s.io/kube-apiserver:v1.37.2"}},
				AutomountServiceAccountToken: new(bool),
			},
		},
	} {
		assert.NoError(t, admin.Create(t.Context(), o))
		t.Cleanup(func() {
			assert.OK(t, admin.Delete(context.Background(), o, client.GracePeriodSeconds(0)))
		})
	}
}
