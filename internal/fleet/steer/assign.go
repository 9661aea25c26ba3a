package steer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// ErrChanged is a NodeConfig that was changed since it was read: nothing was written.
var ErrChanged = errors.New("it was changed by somebody else meanwhile: nothing was assigned; run the command again to see what changes now")

// ContentName is the name of the ConfigMap that holds a content which a person assigns, made of the name of the file that
// it comes from. The same content of the same file has the same name. It holds a dot, which the name of no rollout's
// revision does.
func ContentName(file, sha256 string) string {
	base := filepath.Base(file)
	base = strings.ToLower(strings.TrimSuffix(base, filepath.Ext(base)))
	base = strings.Join(strings.FieldsFunc(base, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), "-")
	const most = 50
	if len(base) > most {
		base = strings.TrimRight(base[:most], "-")
	}
	if base == "" {
		base = "assigned"
	}
	return base + "." + sha256[:10]
}

// Find returns the ConfigMap of this name if it holds exactly this content for good, and nil if there is none. The error
// says why it cannot be used.
func Find(ctx context.Context, c client.Reader, name string, content policy.Content) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	object := v1alpha1.SystemNamespace + "/" + name
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", object, err)
	}
	data, whole := cm.Data[content.Key]
	switch {
	case !whole || len(cm.Data) != 1 || len(cm.BinaryData) != 0 || payload.Digest(content.Key, []byte(data)) != content.SHA256:
		return nil, fmt.Errorf("ConfigMap %s exists and holds something else: delete it, or give the file another name; nothing was changed", object)
	case cm.Immutable == nil || !*cm.Immutable:
		return nil, fmt.Errorf("ConfigMap %s exists and is not immutable, so that its content could change: delete it, or give the file another name; nothing was changed", object)
	case cm.DeletionTimestamp != nil:
		return nil, fmt.Errorf("ConfigMap %s is being deleted: wait until it is gone; nothing was changed", object)
	}
	return cm, nil
}

// Keep creates the immutable ConfigMap that holds a content; one that is there already is used again. It stays until a
// person deletes it.
func Keep(ctx context.Context, c client.Client, name string, content policy.Content, options ...client.CreateOption) (*corev1.ConfigMap, error) {
	immutable := true
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name, Labels: map[string]string{
			"app.kubernetes.io/part-of": "evenkeel", "app.kubernetes.io/managed-by": "kubectl-evenkeel",
		}},
		Immutable: &immutable,
		Data:      map[string]string{content.Key: content.Data},
	}
	err := c.Create(ctx, cm, options...)
	if apierrors.IsAlreadyExists(err) {
		if cm, err = Find(ctx, c, name, content); cm == nil && err == nil {
			err = errors.New("it was deleted meanwhile: run the command again")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create ConfigMap %s/%s: %w", v1alpha1.SystemNamespace, name, err)
	}
	return cm, nil
}

// RefTo is a ConfigMap as a person assigns it: its object, and its content.
func RefTo(cm *corev1.ConfigMap, content policy.Content) *v1alpha1.NodeConfigSource {
	return &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{
		Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: content.SHA256,
	}}
}

// Assign writes the source of one node and what is asked of its trial, nil if nothing is, on condition that nobody has written the spec since it was read: the error is
// ErrChanged otherwise. That the agent writes its status meanwhile does not matter. It returns what is stored then.
func Assign(ctx context.Context, c client.Client, nc *v1alpha1.NodeConfig, source *v1alpha1.NodeConfigSource, asked *v1alpha1.TrialTerms, options ...client.PatchOption) (*v1alpha1.NodeConfig, error) {
	spec := nc.Spec
	spec.ConfigSource, spec.Trial, spec.TakenBack = source, asked, nil
	patch, err := json.Marshal([]Operation{
		{Op: "test", Path: "/metadata/uid", Value: nc.UID},
		{Op: "test", Path: "/metadata/generation", Value: nc.Generation},
		{Op: "add", Path: "/spec", Value: spec}, // as a whole: with an older CRD there may be none to add to
	})
	if err != nil {
		return nil, err
	}
	got := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: nc.Name}}
	options = append(options, client.FieldValidation(metav1.FieldValidationStrict))
	err = c.Patch(ctx, got, client.RawPatch(types.JSONPatchType, patch), options...)
	if err == nil {
		return got, nil
	}
	// A test that fails is Invalid, as other things are: whether it did is looked up.
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		now := &v1alpha1.NodeConfig{}
		again := c.Get(ctx, client.ObjectKey{Name: nc.Name}, now)
		if apierrors.IsNotFound(again) || again == nil && (now.UID != nc.UID || now.Generation != nc.Generation) {
			return nil, fmt.Errorf("NodeConfig %s: %w", nc.Name, ErrChanged)
		}
	}
	return nil, fmt.Errorf("write NodeConfig %s: %w", nc.Name, err)
}
