// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// SetSpec replaces the spec of the node's NodeConfig.
func (b *Bed) SetSpec(ctx context.Context, spec v1alpha1.NodeConfigSpec) error {
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec", "value": spec}})
	if err != nil {
		return err
	}

	return b.configs.Patch(types.JSONPatchType).Resource("nodeconfigs").Name(b.Node.Name()).Body(patch).Do(ctx).Error()
}

// ListNodeConfigs returns the NodeConfigs of all nodes.
func (b *Bed) ListNodeConfigs(ctx context.Context) ([]v1alpha1.NodeConfig, error) {
	list := &v1alpha1.NodeConfigList{}
	err := b.configs.Get().Resource("nodeconfigs").Do(ctx).Into(list)
	return list.Items, err
}

// CreateRollout creates a rollout of a drop-in that nodes with a label receive
// when they join, also before it has succeeded.
func (b *Bed) CreateRollout(ctx context.Context, name, label string, dropin map[string]any) error {
	fields := map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
	maps.Copy(fields, dropin)
	raw, err := json.Marshal(fields)
	if err != nil {
		return err
	}

	key, value, _ := strings.Cut(label, "=")
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeConfigRolloutSpec{
		NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{key: value}}},
		Template:      v1alpha1.RolloutTemplate{KubeletDropIn: &runtime.RawExtension{Raw: raw}},
		NewNodes:      v1alpha1.NewNodesTarget,
	}}
	r.APIVersion, r.Kind = v1alpha1.GroupVersion.String(), "NodeConfigRollout"

	return b.post(ctx, "nodeconfigrollouts", r)
}

// GetRollout returns a rollout.
func (b *Bed) GetRollout(ctx context.Context, name string) (*v1alpha1.NodeConfigRollout, error) {
	r := &v1alpha1.NodeConfigRollout{}
	err := b.configs.Get().Resource("nodeconfigrollouts").Name(name).Do(ctx).Into(r)
	return r, err
}

func (b *Bed) post(ctx context.Context, resource string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}

	return b.configs.Post().Resource(resource).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}
