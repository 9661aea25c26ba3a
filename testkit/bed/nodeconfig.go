package bed

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

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

// CreateNodeConfig creates the node's NodeConfig with a spec.
func (b *Bed) CreateNodeConfig(ctx context.Context, spec v1alpha1.NodeConfigSpec) error {
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: b.Node.Name()}, Spec: spec}
	nc.APIVersion, nc.Kind = v1alpha1.GroupVersion.String(), "NodeConfig"
	body, err := json.Marshal(nc)
	if err != nil {
		return err
	}
	return b.configs.Post().Resource("nodeconfigs").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}

// WatchNodeConfig watches the node's NodeConfig from a resource version.
func (b *Bed) WatchNodeConfig(ctx context.Context, resourceVersion string) (watch.Interface, error) {
	options := metav1.ListOptions{
		Watch: true, ResourceVersion: resourceVersion,
		FieldSelector: fields.OneTermEqualSelector("metadata.name", b.Node.Name()).String(),
	}
	return b.configs.Get().Resource("nodeconfigs").VersionedParams(&options, metav1.ParameterCodec).Watch(ctx)
}
