// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestStoreCreatesUpdatesAndDeletesAndRecordsIt(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a", "kube-proxy": "b"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "user's", "kube-proxy": "", "kubeadm-config": "c"})
	has(t, c, contents{"kubelet-config": "user's", "kubeadm-config": "c"}) // the user's is not signed any more
	recorded(t, c, "00001 v1.37.0 applied")
}

func TestNothingIsWrittenOrRestoredIfOneOfTheConfigMapsIsImmutable(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a", "kube-proxy": "b", "kubeadm-config": "c"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a2", "kube-proxy": "b2", "kubeadm-config": "c2"})
	edit(t, c, "kube-proxy", func(cm *corev1.ConfigMap) { cm.Immutable = new(true) })
	before := snapshot(t, c)
	err := Store(t.Context(), c, "v1.38.0", to(t, c, contents{"kubelet-config": "a3", "kube-proxy": "b3", "kubeadm-config": "c3"}))
	says(t, err, "nothing was written: ConfigMap kube-system/kube-proxy is immutable", "create it again without immutable: true")
	says(t, undo(t.Context(), c, false), "nothing was restored: ConfigMap kube-system/kube-proxy is immutable")
	assert.NoDiff(t, cmp.Diff(before, snapshot(t, c)), "changed")
	recorded(t, c, "00001 v1.37.0 applied")
}

func TestStoreSignsAConfigMapThatHasNoAnnotationsYet(t *testing.T) {
	c := world(t, contents{"kubelet-config": "user's"})
	edit(t, c, "kubelet-config", func(cm *corev1.ConfigMap) { cm.Annotations = nil })
	store(t, c, "v1.37.0", contents{"kubelet-config": "a"})
	cm := snapshot(t, c)["kubelet-config"]
	origin, why := OriginOf(cm)
	assert.That(t, origin == Generated && len(cm.Annotations) == 2, "it is %s: %s; annotations %v", origin, why, cm.Annotations)
}

func TestStoreRecordsNothingWhenNothingChanges(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a"})
	store(t, c, "v1.37.0", contents{"kubelet-config": "a", "kube-proxy": ""})
	recorded(t, c)
}

func TestStoreKeepsLabelsAndOtherAnnotations(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a"})
	writes := to(t, c, contents{"kubelet-config": "b"})
	writes[0].New.Labels, writes[0].New.Annotations["somebody.example/says"] = nil, "yours"
	assert.NoError(t, Store(t.Context(), c, "v1.37.0", writes))
	has(t, c, contents{"kubelet-config": "b"})
}

func TestStoreWritesNothingWithoutPermissionForAllWrites(t *testing.T) {
	const notWritten = "ConfigMap kube-system/%s cannot be written: "
	for _, tt := range []struct {
		name, verbs string
		wanted      contents
		words       string
	}{
		{"update", "get list create delete", contents{"kube-proxy": "b2", "kubeadm-config": "c"}, fmt.Sprintf(notWritten, "kube-proxy")},
		{"create", "get list update delete", contents{"kube-proxy": "b2", "kubeadm-config": "c"}, fmt.Sprintf(notWritten, "kubeadm-config")},
		{"delete", "get list update create", contents{"kubelet-config": "a2", "kube-proxy": ""}, fmt.Sprintf(notWritten, "kube-proxy")},
		{"record", "get list update", contents{"kube-proxy": "b2"}, "record kube-system/evenkeel-component-00001 cannot be written: "},
		{"list", "get update", contents{"kube-proxy": "b2"}, "list the records of upgrades in kube-system: "},
	} {
		c := world(t, contents{"kubelet-config": "a", "kube-proxy": "b"})
		before := snapshot(t, c)
		err := Store(t.Context(), userWith(t, "no-"+tt.name, tt.verbs), "v1.37.0", to(t, c, tt.wanted))
		says(t, err, "nothing was written: "+tt.words, `configmaps`, `is forbidden: User "no-`+tt.name+`" cannot `)
		assert.NoDiff(t, cmp.Diff(before, snapshot(t, c)), tt.name, "changed")
		recorded(t, c)
	}
}

// userWith returns the client of a user who has these rights on ConfigMaps of
// kube-system, once the API server knows.
func userWith(t *testing.T, user, verbs string) client.Client {
	t.Helper()
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: strings.Fields(verbs)}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: system(user), Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.RoleBinding{
			ObjectMeta: system(user), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		},
	} {
		assert.NoError(t, admin.Create(t.Context(), o))
	}

	attributes := &authorizationv1.ResourceAttributes{Namespace: metav1.NamespaceSystem, Verb: "get", Resource: "configmaps"}
	assert.Eventually(t, user+" has its rights", func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: attributes}}
		assert.NoError(t, admin.Create(t.Context(), review))
		return review.Status.Allowed
	})
	kubeconfig := assert.Value(cluster.ClientKubeconfig(user))(t)
	config := assert.Value(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)

	return clientOf(t, config)
}

func TestANewConfigMapThatIsNotFoundWasNotChanged(t *testing.T) {
	err := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "kube-system")
	assert.Error(t, Write{New: configMap("kube-proxy", "")}.explainError(err),
		`ConfigMap kube-system/kube-proxy cannot be written: namespaces "kube-system" not found: fix that and run the command again`)
}

func TestStoreWritesNothingIfAConfigMapChangedSinceItWasRead(t *testing.T) {
	type happens []func(*testing.T, client.Client)
	edited := func(t *testing.T, c client.Client) { replace(t, c, "kube-proxy", "theirs") }
	deleted := func(t *testing.T, c client.Client) {
		assert.NoError(t, c.Delete(t.Context(), configMap("kube-proxy", "")))
	}
	created := func(t *testing.T, c client.Client) {
		assert.NoError(t, c.Create(t.Context(), configMap("kube-proxy", "theirs")))
	}
	both := contents{"kubelet-config": "a", "kube-proxy": "b"}
	for _, tt := range []struct {
		name    string
		has     contents
		wanted  string
		happens happens
	}{
		{"changed", both, "b2", happens{edited}},
		{"changed, and was to be deleted", both, "", happens{edited}},
		{"deleted", both, "b2", happens{deleted}},
		{"made anew", both, "b2", happens{deleted, created}},
		{"created", contents{"kubelet-config": "a"}, "b2", happens{created}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := world(t, tt.has)
			writes := to(t, c, contents{"kubelet-config": "a2", "kube-proxy": tt.wanted})
			for _, change := range tt.happens {
				change(t, c)
			}

			before := snapshot(t, c)
			says(t, Store(t.Context(), c, "v1.37.0", writes),
				"nothing was written: ConfigMap kube-system/kube-proxy was changed in the meantime", "run the command again to see the changes")
			assert.NoDiff(t, cmp.Diff(before, snapshot(t, c)), "changed")
			recorded(t, c)
		})
	}
}

func TestStoreRejectsAConfigMapThatWasNotRead(t *testing.T) {
	c := world(t, contents{"kube-proxy": "b"})
	err := Store(t.Context(), c, "v1.37.0", []Write{{Old: configMap("kube-proxy", "b"), New: configMap("kube-proxy", "b2")}})
	says(t, err, "nothing was written: ConfigMap kube-system/kube-proxy has no resourceVersion")
	has(t, c, contents{"kube-proxy": "b"})
}

// A change that comes after the dry run is found by the write itself. What was
// written stays, the record lists that alone, and the next Store carries on:
// one undo restores all.
func TestAfterAConflictTheNextStoreContinuesAndKeepsTheEdit(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a", "kube-proxy": "b"})
	desired := contents{"kubelet-config": "a2", "kube-proxy": "b2", "kubeadm-config": "c"}
	says(t, Store(t.Context(), late(t, c, "kube-proxy", "user's"), "v1.37.0", to(t, c, desired)),
		"1 of 3 ConfigMaps were written: ConfigMap kube-system/kube-proxy was changed in the meantime")
	has(t, c, contents{"kubelet-config": "a2", "kube-proxy": "user's"})
	recorded(t, c, "00001 v1.37.0 stopped")

	store(t, c, "v1.37.0", desired)
	has(t, c, desired)
	recorded(t, c, "00001 v1.37.0 applied")
	assert.NoError(t, undo(t.Context(), c, false))
	has(t, c, contents{"kubelet-config": "a", "kube-proxy": "user's"})
}

func TestAConflictBeforeAnythingWasWrittenLeavesNoRecord(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a"})
	says(t, Store(t.Context(), late(t, c, "kubelet-config", "user's"), "v1.37.0", to(t, c, contents{"kubelet-config": "a2"})),
		"0 of 1 ConfigMaps were written", "was changed in the meantime")
	has(t, c, contents{"kubelet-config": "user's"})
	recorded(t, c)
}

// The write that is refused was not made, but one before it was, by the apply
// that is carried on.
func TestAConflictKeepsWhatAnInterruptedApplySaved(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a", "kube-proxy": "b"})
	cut := between(t, "kube-proxy", func() error { return errors.New("gone") })
	says(t, Store(t.Context(), cut, "v1.37.0", to(t, c, contents{"kubelet-config": "a2", "kube-proxy": "b2"})), "1 of 2 ConfigMaps were written", "gone")
	recorded(t, c, "00001 v1.37.0 begun")
	says(t, Store(t.Context(), late(t, c, "kubelet-config", "theirs"), "v1.37.2", to(t, c, contents{"kubelet-config": "a3"})),
		"0 of 1 ConfigMaps were written", "was changed in the meantime")
	recorded(t, c, "00001 v1.37.2 stopped")
	says(t, undo(t.Context(), c, false), "changed since the apply of v1.37.2", "kube-system/kubelet-config")
	assert.NoError(t, undo(t.Context(), c, true))
	has(t, c, contents{"kubelet-config": "a", "kube-proxy": "b"})
}

func TestOfTwoConcurrentStoresOneFailsAndWritesNothing(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a", "kube-proxy": "b"})
	writes := to(t, c, contents{"kubelet-config": "a2"})
	slow := between(t, "evenkeel-component-00001", func() error {
		store(t, c, "theirs", contents{"kube-proxy": "b2"})
		return nil
	})
	says(t, Store(t.Context(), slow, "ours", writes),
		"nothing was written: ConfigMap kube-system/evenkeel-component-00001 already exists", "run the command again")
	has(t, c, contents{"kubelet-config": "a", "kube-proxy": "b2"})
	recorded(t, c, "00001 theirs applied")
	store(t, c, "ours", contents{"kubelet-config": "a2"})
	recorded(t, c, "00001 theirs applied", "00002 ours applied")
}

func TestContentsThatDoNotFitIntoARecordAreAnErrorBeforeAnyWrite(t *testing.T) {
	c := world(t, contents{"kubelet-config": "a", "kube-proxy": "b"})
	for _, name := range []string{"kubelet-config", "kube-proxy"} {
		edit(t, c, name, func(cm *corev1.ConfigMap) {
			cm.BinaryData["bytes"] = make([]byte, 600<<10)
			_, _ = rand.Read(cm.BinaryData["bytes"]) // never fails
		})
	}

	before := snapshot(t, c)
	err := Store(t.Context(), c, "v1.37.0", to(t, c, contents{"kubelet-config": "a2", "kube-proxy": "b2"}))
	says(t, err, "nothing was written: the undo record would have 1", "bytes, compressed", "holds 1048576): change fewer or smaller ConfigMaps at a time")
	assert.NoDiff(t, cmp.Diff(before, snapshot(t, c)), "changed")
	recorded(t, c)
}
