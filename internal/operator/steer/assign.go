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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// ErrChanged is the error for a NodeConfig that was changed since it was read.
// Nothing was written.
var ErrChanged = errors.New("the NodeConfig was changed in the meantime: nothing was assigned; run the command again to see the new " +
	"changes")

// ContentName returns the name of the ConfigMap for content that a person
// assigns. It is made of the name of the file and the digest of the content,
// with a dot, which the names of rollouts' revisions never contain.
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

// FindContent returns the immutable ConfigMap of this name and content, and nil
// if there is no ConfigMap of this name. The error says why an existing
// ConfigMap cannot be used.
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

// CreateContent creates the immutable ConfigMap for content, or returns the
// existing one. Only a person deletes it.
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

// Assign writes the source of one node and the settings of its trial, which may
// be nil, and returns the stored NodeConfig. The error is ErrChanged if the
// spec was changed since it was read; changes of the status do not matter.
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

	// Invalid can also mean other mistakes, so read the object to see whether a
	// test failed.
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		now := &v1alpha1.NodeConfig{}
		again := c.Get(ctx, client.ObjectKey{Name: nc.Name}, now)
		if apierrors.IsNotFound(again) || again == nil && (now.UID != nc.UID || now.Generation != nc.Generation) {
			return nil, fmt.Errorf("NodeConfig %s: %w", nc.Name, ErrChanged)
		}
	}

	return nil, fmt.Errorf("write NodeConfig %s: %w", nc.Name, err)
}

// TemplateOf returns a template that holds a payload.
func TemplateOf(key string, data []byte) (v1alpha1.RolloutTemplate, error) {
	object, err := yaml.YAMLToJSON(data)
	if err != nil {
		return v1alpha1.RolloutTemplate{}, fmt.Errorf("convert the configuration to JSON: %w", err)
	}

	raw := &runtime.RawExtension{Raw: object}
	if key == payload.KeyKubeletDropin {
		return v1alpha1.RolloutTemplate{KubeletDropIn: raw}, nil
	}

	return v1alpha1.RolloutTemplate{Kubelet: raw}, nil
}

// preflightTTL is how long a NodeConfigPreflight of one node is kept after the
// answer, in seconds, if its creator does not delete it.
const preflightTTL = 60

// NodePreflight returns a NodeConfigPreflight that asks one node about content.
// The error says why the node cannot be asked.
func NodePreflight(ctx context.Context, c client.Reader, p fleet.Pair, content payload.Payload,
	trial *v1alpha1.TrialTerms) (*v1alpha1.NodeConfigPreflight, error) {
	switch {
	case p.Node == nil:
		return nil, errors.New("the Node does not exist")
	case p.Config == nil || p.Config.Status.AgentVersion == "":
		return nil, errors.New("no agent has reported from it")
	}

	name := p.Node.Labels[corev1.LabelHostname]
	if name == "" {
		return nil, errors.New("the Node has no label " + corev1.LabelHostname + ", by which a preflight selects it")
	}

	same := &corev1.NodeList{}
	if err := c.List(ctx, same, client.MatchingLabels{corev1.LabelHostname: name}, client.Limit(2)); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	if len(same.Items) != 1 {
		return nil, fmt.Errorf("several nodes have the label %s=%s, by which a preflight selects one", corev1.LabelHostname, name)
	}

	template, err := TemplateOf(content.Key, content.Data)
	if err != nil {
		return nil, err
	}

	o := &v1alpha1.NodeConfigPreflight{ObjectMeta: metav1.ObjectMeta{GenerateName: "assign-"}, Spec: v1alpha1.NodeConfigPreflightSpec{
		NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{corev1.LabelHostname: name}}},
		Trial:         trial, TTLSecondsAfterFinished: new(int32(preflightTTL)),
		Template: v1alpha1.PreflightTemplate{Kubelet: template.Kubelet, KubeletDropIn: template.KubeletDropIn},
	}}

	return o, nil
}

// CreatePreflight creates a NodeConfigPreflight. The error about a missing
// right names the role that grants it.
func CreatePreflight(ctx context.Context, c client.Client, o *v1alpha1.NodeConfigPreflight) error {
	err := c.Create(ctx, o, client.FieldValidation(metav1.FieldValidationStrict))
	switch {
	case apierrors.IsForbidden(err):
		return errors.New("you may not create NodeConfigPreflights (the ClusterRole evenkeel-preflight grants it)")
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return errors.New("the cluster's CRDs are older than this command, and have no NodeConfigPreflight: kubectl apply -f install.yaml")
	case err != nil:
		return fmt.Errorf("create a NodeConfigPreflight: %w", err)
	}

	return nil
}

// NodeAnswer returns the answer in a complete NodeConfigPreflight of one node;
// nil if the node accepts the configuration and says nothing about it. why says
// why there is no answer; it is empty if there is one.
func NodeAnswer(o *v1alpha1.NodeConfigPreflight) (answer *v1alpha1.PreflightGroup, why string) {
	switch r := o.Status.Result; {
	case o.Status.Phase == v1alpha1.PreflightInvalid:
		return nil, o.Status.Message
	case len(r.Groups) > 0:
		return &r.Groups[0], ""
	case r.Accepted > 0:
		return nil, ""
	}

	return nil, "its agent has not answered"
}
