package componentconfig

import (
	"encoding/json"
	"maps"
	"reflect"

	kubeproxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// WithoutZeroes returns the fields of a component's configuration without those that say nothing: what the component's
// versioned type is written with when nobody has set anything (syncFrequency: 0s), which kubeadm's uploads are full of. They
// mean the default, as does their absence; but laid over another configuration they would take its values away.
func WithoutZeroes(c Component, fields map[string]any) map[string]any {
	var empty any = &kubeletv1beta1.KubeletConfiguration{}
	if c.Name == "kube-proxy" {
		empty = &kubeproxyv1alpha1.KubeProxyConfiguration{}
	}
	zeroes := map[string]any{}
	if text, err := json.Marshal(empty); err == nil {
		_ = json.Unmarshal(text, &zeroes) // of what was just written
	}
	return without(fields, zeroes)
}

func without(fields, zeroes map[string]any) map[string]any {
	rest := maps.Clone(fields)
	for name, zero := range zeroes {
		value, there := rest[name]
		inner, isMap := value.(map[string]any)
		within, zeroIsMap := zero.(map[string]any)
		switch {
		case !there:
		case isMap && zeroIsMap:
			if rest[name] = without(inner, within); len(rest[name].(map[string]any)) == 0 {
				delete(rest, name)
			}
		case reflect.DeepEqual(value, zero):
			delete(rest, name)
		}
	}
	return rest
}
