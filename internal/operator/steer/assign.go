// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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
	"github.com/evenkeel/evenkeel/internal/payload"
)

// ErrChanged is the error for a NodeConfig that was changed since it was read. Nothing was written.
var ErrChanged = errors.New("the NodeConfig was changed in the meantime: nothing was assigned; run the command again to see the new " +
	"changes")

// ContentName returns the name of the ConfigMap for content that a person assigns. It is made of the name of the file and the
// digest of the content, with a dot, which the names of rollouts' revisions never contain.
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

// FindContent returns the immutable ConfigMap of this name and content, and nil if there is no ConfigMap of this name. The error
// says why an existing ConfigMap cannot be used.
func FindContent(ctx context.Context, c client.Reader, name string, content payload.Payload) (*corev1.ConfigMap, error) {
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
		return nil, fmt.Errorf("ConfigMap %s exists with other content: delete it, or rename the file; nothing was changed", object)
	case cm.Immutable == nil || !*cm.Immutable:
		return nil, fmt.Errorf("ConfigMap %s exists and is not immutable: delete it, or rename the file; nothing was changed", object)
	case cm.DeletionTimestamp != nil:
		return nil, fmt.Errorf("ConfigMap %s is being deleted: wait until it is gone; nothing was changed", object)
	}
	return cm, nil
}

// CreateContent creates the immutable ConfigMap for content, or returns the existing one. Only a person deletes it.
func CreateContent(ctx context.Context, c client.Client, name string, content payload.Payload) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name, Labels: map[string]string{
			"app.kubernetes.io/part-of": "evenkeel", "app.kubernetes.io/managed-by": "kubectl-evenkeel",
		}},
		Immutable: new(true),
		Data:      map[string]string{content.Key: string(content.Data)},
	}
	err := c.Create(ctx, cm)
	if apierrors.IsAlreadyExists(err) {
		if cm, err = FindContent(ctx, c, name, content); cm == nil && err == nil {
			err = errors.New("it was deleted in the meantime: run the command again")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create ConfigMap %s/%s: %w", v1alpha1.SystemNamespace, name, err)
	}
	return cm, nil
}

// SourceOf returns the source with which a person assigns a ConfigMap.
func SourceOf(cm *corev1.ConfigMap, content payload.Payload) *v1alpha1.NodeConfigSource {
	return &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{
		Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: content.SHA256,
	}}
}

// Assign writes the source of one node and the settings of its trial, which may be nil, and returns the stored NodeConfig. The
// error is ErrChanged if the spec was changed since it was read; changes of the status do not matter.
func Assign(ctx context.Context, c client.Client, nc *v1alpha1.NodeConfig, source *v1alpha1.NodeConfigSource,
	trial *v1alpha1.TrialTerms) (*v1alpha1.NodeConfig, error) {
	spec := nc.Spec
	spec.ConfigSource, spec.Trial, spec.TakenBack = source, trial, nil
	patch, err := json.Marshal([]Operation{
		{Op: "test", Path: "/metadata/uid", Value: nc.UID},
		{Op: "test", Path: "/metadata/generation", Value: nc.Generation},
		{Op: "add", Path: "/spec", Value: spec},
	})
	if err != nil {
		return nil, err
	}
	got := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: nc.Name}}
	err = c.Patch(ctx, got, client.RawPatch(types.JSONPatchType, patch), client.FieldValidation(metav1.FieldValidationStrict))
	if err == nil {
		return got, nil
	}
	// Invalid can also mean other mistakes, so read the object to see whether a test failed.
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		now := &v1alpha1.NodeConfig{}
		again := c.Get(ctx, client.ObjectKey{Name: nc.Name}, now)
		if apierrors.IsNotFound(again) || again == nil && (now.UID != nc.UID || now.Generation != nc.Generation) {
			return nil, fmt.Errorf("NodeConfig %s: %w", nc.Name, ErrChanged)
		}
	}
	return nil, fmt.Errorf("write NodeConfig %s: %w", nc.Name, err)
}
