package kubeadm

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Action is what an upgrade does with one configuration.
type Action string

const (
	Keep       Action = "keep"       // what a user supplied or modified stays as it is
	Regenerate Action = "regenerate" // what is there is replaced by what is generated from the ClusterConfiguration
	Generate   Action = "generate"   // there is none: the same
	Replace    Action = "replace"    // with what the user gives
	Skip       Action = "skip"       // the component is not installed
)

// Change is what an upgrade makes of one component's configuration.
type Change struct {
	Component    Component
	Origin       Origin // of what the cluster has; "" if it has none
	OriginReason string
	Current      []byte // what the cluster has; nil if there is none
	Unreadable   string // why that is no configuration at all; "" if it may be one
	Action       Action
	Why          string
	Next         []byte // what there will be; nil if there will be none
	Write        *Write // what is to be stored for that; nil: nothing
	Warnings     []string
}

// Options change what Decide does.
type Options struct {
	// Init is for a cluster that is being made: what is missing is generated, whether or not it is installed already.
	Init bool
}

// Decide returns what will be there of each component, in the order of Components, and what is to be stored of the
// ClusterConfiguration, nil if nothing. What the user gave replaces what the cluster has; what was generated is generated
// anew, by the ClusterConfiguration given, else by the cluster's. A ClusterConfiguration that is given replaces everything:
// a component configuration that does not come with it is generated, whatever the cluster has (proposal: "kubeadm upgrade
// plan changes"). Given may be nil. The error says what is missing.
func Decide(have *Cluster, given *Input, o Options) ([]Change, *Write, error) {
	d, err := newDecider(have, given, o)
	if err != nil {
		return nil, nil, err
	}
	var changes []Change
	for _, component := range Components() {
		change, err := d.decide(component)
		if err != nil {
			return nil, nil, err
		}
		changes = append(changes, change)
	}
	write, err := d.clusterConfiguration()
	return changes, write, err
}

type decider struct {
	current  *Cluster
	input    *Input
	options  Options
	cluster  *ClusterConfiguration // that configurations are generated from
	endpoint string
}

// newDecider chooses the ClusterConfiguration. The error says that there is none.
func newDecider(have *Cluster, given *Input, o Options) (*decider, error) {
	if given == nil {
		given = &Input{}
	}
	d := &decider{current: have, input: given, options: o, cluster: cmp.Or(given.Cluster, have.Configuration)}
	switch {
	case d.cluster == nil && have.ConfigurationErr != nil:
		return nil, fmt.Errorf("ConfigMap %s/%s: %w: mend it, or give a ClusterConfiguration with --config (upgrade plan, upgrade apply, config upload)",
			metav1.NamespaceSystem, KubeadmConfigMap, have.ConfigurationErr)
	case d.cluster == nil:
		return nil, fmt.Errorf("there is no ConfigMap %s/%s, so this is no cluster of kubeadm's, or it was deleted: give a ClusterConfiguration with --config (upgrade plan, upgrade apply, config upload)",
			metav1.NamespaceSystem, KubeadmConfigMap)
	case given.Cluster != nil:
		d.endpoint = given.Endpoint
	}
	// What kube-proxies are told now holds as long as the control plane is where it was.
	if have.Configuration != nil && d.cluster.ControlPlaneEndpoint == have.Configuration.ControlPlaneEndpoint {
		d.endpoint = cmp.Or(d.endpoint, have.ProxyServer)
	}
	d.endpoint = cmp.Or(d.endpoint, have.Endpoint)
	return d, nil
}

func (d *decider) decide(c Component) (Change, error) {
	change := Change{Component: c}
	old := d.current.ConfigMaps[c.ConfigMap]
	if old != nil {
		change.Origin, change.OriginReason = OriginOf(old)
		text, ok := old.Data[c.Key]
		if !ok {
			change.Unreadable = fmt.Sprintf("ConfigMap %s has no key %s", nameOf(old), c.Key)
		} else {
			change.Current = []byte(text)
			change.Unreadable = whyUnreadable(c, change.Current)
		}
	}
	if c.Tier == AddOn {
		change.Warnings = d.proxyWarnings(old)
	}
	if document, ok := d.input.Configs[c.Name]; ok {
		return d.replace(change, old, document)
	}
	switch {
	case d.input.Cluster != nil && old != nil && change.Origin != Generated:
		change.Action, change.Why = Regenerate, fmt.Sprintf("%s has a ClusterConfiguration and no %s: what is %s gives way to a generated one",
			d.input.File, c.Kind, change.Origin)
	case old != nil && change.Origin != Generated:
		change.Action, change.Why, change.Next = Keep, change.OriginReason, change.Current
		return change, nil
	case old != nil && d.input.Cluster != nil:
		change.Action, change.Why = Regenerate, fmt.Sprintf("generated, and nobody has changed it; now from the ClusterConfiguration in %s", d.input.File)
	case old != nil:
		change.Action, change.Why = Regenerate, "generated, and nobody has changed it"
	case c.Tier == AddOn && d.cluster.ProxyDisabled:
		change.Action, change.Why = Skip, "not installed: the ClusterConfiguration has it disabled"
		return change, nil
	case c.Tier == AddOn && d.input.Cluster == nil && !d.options.Init && d.current.ProxyImage == "":
		change.Action, change.Why = Skip, fmt.Sprintf("not installed: there is neither a ConfigMap nor a DaemonSet %s/%s", metav1.NamespaceSystem, c.Name)
		return change, nil
	default:
		change.Action, change.Why = Generate, fmt.Sprintf("there is no ConfigMap %s/%s", metav1.NamespaceSystem, c.ConfigMap)
	}
	generated, err := generate(c, d.cluster, d.endpoint)
	if err != nil {
		return change, err
	}
	change.Next = []byte(generated.Data[c.Key])
	change.Write = newWrite(old, generated)
	return change, nil
}

// proxyWarnings say what is odd about a kube-proxy.
func (d *decider) proxyWarnings(old *corev1.ConfigMap) []string {
	_, given := d.input.Configs["kube-proxy"]
	switch {
	case d.cluster.ProxyDisabled && (old != nil || given):
		return []string{"the ClusterConfiguration has it disabled, and it has a configuration all the same: kubeadm leaves it alone"}
	case !d.options.Init && !d.cluster.ProxyDisabled && d.current.ProxyImage == "" && (old != nil || given || d.input.Cluster != nil):
		return []string{"there is no DaemonSet kube-system/kube-proxy that would read its configuration"}
	}
	return nil
}

// replace stores what the user gave, unsigned. Beside it stands what is there, or what would be generated.
func (d *decider) replace(change Change, old *corev1.ConfigMap, document Document) (Change, error) {
	c := change.Component
	change.Action, change.Next = Replace, document.Text
	change.Why = fmt.Sprintf("given in %s", document.Place)
	var generated *corev1.ConfigMap
	if old == nil || d.input.Cluster != nil {
		var err error
		if generated, err = generate(c, d.cluster, d.endpoint); err != nil {
			return change, err
		}
	}
	next := cmp.Or(old.DeepCopy(), generated)
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	if generated != nil {
		maps.Copy(next.Data, generated.Data)
	}
	next.Data[c.Key] = string(document.Text)
	Unsign(next)
	change.Write = newWrite(old, next)
	return change, change.warnAboutOmissions(d.cluster, document)
}

// warnAboutOmissions warns of what a document that is given leaves out, beside what would be generated.
func (c *Change) warnAboutOmissions(cc *ClusterConfiguration, document Document) error {
	text, err := derive(c.Component, cc)
	if err != nil {
		return err
	}
	derived, err := Fields([]byte(text))
	if err != nil {
		return fmt.Errorf("what is generated: %w", err)
	}
	given, err := Fields(document.Text)
	if err != nil {
		return fmt.Errorf("%s: %w", document.Place, err)
	}
	if missing := missingFields("", derived, given); len(missing) > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%s leaves out what would be generated: %s (config print component-defaults has it): nobody adds it",
			document.Place, strings.Join(missing, ", ")))
	} else if reflect.DeepEqual(derived, given) {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%s is what would be generated: stored as a user's, it stays as it is at later upgrades; without it, it is generated anew each time",
			document.Place))
	}
	return nil
}

// missingFields are the paths of fields that one document has and the other has not.
func missingFields(path string, of, in map[string]any) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		value, there := in[name]
		inner, isMap := of[name].(map[string]any)
		within, _ := value.(map[string]any)
		switch {
		case isMap:
			all = append(all, missingFields(path+name+".", inner, within)...)
		case !there:
			all = append(all, path+name)
		}
	}
	return all
}

// clusterConfiguration is what is stored of the ClusterConfiguration that was given. Its kubernetesVersion stays the
// cluster's: that is what the control plane runs, and what kubeadm gives the next node; kubeadm changes it.
func (d *decider) clusterConfiguration() (*Write, error) {
	if d.input.Cluster == nil {
		return nil, nil
	}
	text := d.input.Cluster.Document
	old := d.current.ConfigMaps[KubeadmConfigMap]
	is := "" // the control plane's version
	if d.current.Configuration != nil {
		is = d.current.Configuration.KubernetesVersion
	}
	switch {
	case is == "" && d.input.Cluster.KubernetesVersion == "":
		return nil, fmt.Errorf("the ClusterConfiguration in %s has no kubernetesVersion, and there is no ConfigMap %s/%s that has it: add it",
			d.input.File, metav1.NamespaceSystem, KubeadmConfigMap)
	case is != "" && is != d.input.Cluster.KubernetesVersion:
		fields, err := Fields(text)
		if err != nil {
			return nil, fmt.Errorf("the ClusterConfiguration in %s: %w", d.input.File, err)
		}
		fields["kubernetesVersion"] = is
		if text, err = yaml.Marshal(fields); err != nil {
			return nil, fmt.Errorf("the ClusterConfiguration in %s: %w", d.input.File, err)
		}
	}
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: KubeadmConfigMap}}
	if old != nil {
		next = old.DeepCopy()
	}
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	next.Data[KubeadmConfigKey] = string(text)
	return newWrite(old, next), nil
}

// newWrite returns what makes of an old ConfigMap a new one, nil if nothing does.
func newWrite(old, wanted *corev1.ConfigMap) *Write {
	if contentDigest(old) == contentDigest(wanted) {
		return nil
	}
	return &Write{Old: old, New: wanted}
}

// whyUnreadable says why text cannot be a component's configuration; "" if its component may be asked.
func whyUnreadable(c Component, text []byte) string {
	fields, err := Fields(text)
	switch {
	case err != nil:
		return fmt.Sprintf("it cannot be read: %v", err)
	case fields["kind"] != c.Kind || !strings.HasPrefix(apiVersionOf(text), c.Group+"/"):
		return fmt.Sprintf("it is no %s of %s, but %v of %v", c.Kind, c.Group, fields["kind"], fields["apiVersion"])
	}
	return ""
}

// apiVersionOf returns the apiVersion of a configuration; "" if it has none.
func apiVersionOf(text []byte) string {
	fields, err := Fields(text)
	if err != nil {
		return ""
	}
	version, _ := fields["apiVersion"].(string)
	return version
}

// Defaults returns the configurations, as YAML documents, that are generated from the ClusterConfiguration that the user
// gave, else from the cluster's; of the components named, of all if none is (proposal: "kubeadm alpha config print
// component-defaults"). The error says what is missing.
func Defaults(have *Cluster, given *Input, names []string) ([]byte, error) {
	d, err := newDecider(have, given, Options{})
	if err != nil {
		return nil, err
	}
	var documents bytes.Buffer
	for _, c := range Components() {
		if len(names) > 0 && !slices.Contains(names, c.Name) {
			continue
		}
		text, err := derive(c, d.cluster)
		if err != nil {
			return nil, err
		}
		documents.WriteString("---\n" + text)
	}
	return documents.Bytes(), nil
}
