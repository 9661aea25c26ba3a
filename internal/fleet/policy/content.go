package policy

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Content is the content of a template: one payload, as it is stored in the ConfigMap of a revision.
type Content struct {
	Key    string // payload.KeyKubelet or payload.KeyKubeletDropin
	Data   string
	SHA256 string
}

// ContentOf returns the content of a template. named is the ConfigMap of the template's configMapRef, if it has one. The
// error says what is wrong with the configuration.
func ContentOf(t v1alpha1.RolloutTemplate, named *corev1.ConfigMap) (Content, error) {
	var c Content
	switch {
	case t.Kubelet != nil:
		return inline(payload.KeyKubelet, "kubelet", t.Kubelet)
	case t.KubeletDropIn != nil:
		return inline(payload.KeyKubeletDropin, "kubeletDropIn", t.KubeletDropIn)
	case t.ConfigMapRef == nil:
		return c, fmt.Errorf("spec.template has none of kubelet, kubeletDropIn and configMapRef")
	}
	p, err := payload.FromConfigMap(named)
	if err != nil && named.Namespace != v1alpha1.SystemNamespace { // the author of the rollout may not be allowed to read it
		err = errors.New("it is not a valid configuration; the details are not shown, because it is outside of namespace " + v1alpha1.SystemNamespace + ": check it with kubectl evenkeel config validate FILE")
	}
	if err != nil {
		return c, fmt.Errorf("ConfigMap %s/%s: %w", named.Namespace, named.Name, err)
	}
	return Content{p.Key, string(p.Data), p.SHA256}, nil
}

// inline converts an object of the template to YAML: equal objects give equal bytes.
func inline(key, field string, raw *runtime.RawExtension) (Content, error) {
	if refused := payload.CheckLimits(raw.Raw); refused != nil { // converted to YAML, it could be many times as large
		return Content{}, fmt.Errorf("spec.template.%s: %w", field, refused)
	}
	data, err := yaml.JSONToYAML(raw.Raw)
	if err != nil {
		return Content{}, fmt.Errorf("spec.template.%s: %w", field, err)
	}
	p, err := payload.Decode(key, data)
	if err != nil {
		return Content{}, fmt.Errorf("spec.template.%s: %w", field, err)
	}
	return Content{key, string(data), p.SHA256}, nil
}

// TrialTerms returns the trial terms of a content: those in the payload, or those beside it. It fails if both have terms.
func (c Content) TrialTerms(beside *v1alpha1.TrialTerms) (payload.TrialSettings, error) {
	p, err := payload.Decode(c.Key, []byte(c.Data))
	if err != nil {
		return payload.TrialSettings{}, err
	}
	return payload.ResolveTrial(p.Trial, beside)
}

// RevisionName returns the name of the ConfigMap for a content of a rollout. In a manifest, the digest can be too short.
func RevisionName(rollout, sha256 string) string {
	return rollout + "-" + sha256[:min(10, len(sha256))]
}
