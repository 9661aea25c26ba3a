// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
)

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

// preflightTTL is how long a NodeConfigPreflight of one node is kept after the answer, in seconds, if its creator does not delete it.
const preflightTTL = 60

// NodePreflight returns a NodeConfigPreflight that asks one node about content. The error says why the node cannot be asked.
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

// CreatePreflight creates a NodeConfigPreflight. The error about a missing right names the role that grants it.
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

// NodeAnswer returns the answer in a complete NodeConfigPreflight of one node; nil if the node accepts the configuration and says nothing
// about it. why says why there is no answer; it is empty if there is one.
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
