package kubeadm

import (
	"encoding/json"
	"maps"
	"reflect"

	kubeproxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// WithoutZeroes returns the fields of a component's configuration without those that say nothing: what the component's
// versioned type is written with when nobody has set anything (syncFrequency: 0s), which kubeadm's uploads are full of. They
// mean the default, as does their absence; but laid over another configuration they would take its values away.
func WithoutZeroes(c Component, fields map[string]any) map[string]any {
	return removeFields(fields, zeroFields(c))
}

// Overlay returns what there will be as it can be laid over another configuration: without the zeroes of WithoutZeroes, but
// for those by which a user takes back what the cluster has set. It is the text itself if nothing has to go.
func (c *Change) Overlay() ([]byte, error) {
	next, err := Fields(c.Next)
	if err != nil {
		return nil, err
	}
	silent := zeroFields(c.Component)
	if now, err := Fields(c.Current); c.Action == Replace {
		if err != nil { // there is none, or none that says anything
			now = nil
		}
		silent = intersection(silent, now)
	}
	rest := removeFields(next, silent)
	if reflect.DeepEqual(next, rest) {
		return c.Next, nil
	}
	return yaml.Marshal(rest)
}

// zeroFields is how a component's type is written when nothing is set.
func zeroFields(c Component) map[string]any {
	var empty any = &kubeletv1beta1.KubeletConfiguration{}
	if c.Name == "kube-proxy" {
		empty = &kubeproxyv1alpha1.KubeProxyConfiguration{}
	}
	all := map[string]any{}
	if text, err := json.Marshal(empty); err == nil {
		_ = json.Unmarshal(text, &all) // of what was just written
	}
	return all
}

// intersection is what two trees have in common.
func intersection(a, b map[string]any) map[string]any {
	both := map[string]any{}
	for name, value := range a {
		other, there := b[name]
		inner, isMap := value.(map[string]any)
		within, otherIsMap := other.(map[string]any)
		switch {
		case !there:
		case isMap && otherIsMap:
			both[name] = intersection(inner, within)
		case reflect.DeepEqual(value, other):
			both[name] = value
		}
	}
	return both
}

func removeFields(fields, zeroes map[string]any) map[string]any {
	rest := maps.Clone(fields)
	for name, zero := range zeroes {
		value, there := rest[name]
		inner, isMap := value.(map[string]any)
		within, zeroIsMap := zero.(map[string]any)
		switch {
		case !there:
		case isMap && zeroIsMap:
			if rest[name] = removeFields(inner, within); len(rest[name].(map[string]any)) == 0 {
				delete(rest, name)
			}
		case reflect.DeepEqual(value, zero):
			delete(rest, name)
		}
	}
	return rest
}
