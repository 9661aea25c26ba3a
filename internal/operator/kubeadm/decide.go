// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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

	"github.com/evenkeel/evenkeel/internal/payload"
)

// Action is what an upgrade does with one configuration.
type Action string

// The actions.
const (
	Keep       Action = "keep"       // leave a configuration that a user supplied or modified unchanged
	Regenerate Action = "regenerate" // replace it with one generated from the ClusterConfiguration
	Generate   Action = "generate"   // create the missing one from the ClusterConfiguration
	Replace    Action = "replace"    // replace it with the one in the user's file
	Skip       Action = "skip"       // nothing, because the component is not installed
)

// Change is what an upgrade does with one component's configuration.
type Change struct {
	Component    Component
	Origin       Origin // of Current; "" without Current
	OriginReason string
	Current      []byte // the cluster's configuration; nil if there is none
	Unreadable   string // why Current is not a configuration; "" if the component can validate it
	Action       Action
	Why          string
	Next         []byte // the configuration after the upgrade; nil if there is none
	Write        *Write // nil if nothing is stored
	Warnings     []string
	Loss         string // which fields that kubeadm generates are in Current and not in the user's document; "" if none

	same bool // whether Current is generated and says the same as Next
}

// Options change what Decide does.
type Options struct {
	// Init is for a new cluster: missing configurations are generated even if
	// their component is not installed yet.
	Init bool
}

// Decide returns one Change for each of Components, in their order, and the
// Write of the ClusterConfiguration, nil if it stays. Configurations in the
// user's file replace those of the cluster. Generated ones are generated again,
// from the file's ClusterConfiguration, or else from the cluster's. If the file
// has a ClusterConfiguration, configurations that are not in the file are
// generated too, whatever their origin (proposal: "kubeadm upgrade plan
// changes"). input may be nil. The error says what is missing.
func Decide(existing *Cluster, input *Input, o Options) ([]Change, *Write, error) {
	d, err := newDecider(existing, input, o)
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
	cluster  *ClusterConfiguration // the one to generate from
	endpoint string
}

// newDecider chooses the ClusterConfiguration. It fails if neither the file nor
// the cluster has one.
func newDecider(existing *Cluster, input *Input, o Options) (*decider, error) {
	input = cmp.Or(input, &Input{})
	d := &decider{current: existing, input: input, options: o, cluster: cmp.Or(input.Cluster, existing.Configuration)}
	switch {
	case d.cluster == nil && existing.ConfigurationErr != nil:
		return nil, fmt.Errorf("ConfigMap %s/%s: %w: repair it, or pass a ClusterConfiguration with --config (component plan, component apply, "+
			"config upload)",
			metav1.NamespaceSystem, KubeadmConfigMap, existing.ConfigurationErr)
	case d.cluster == nil:
		return nil, fmt.Errorf("ConfigMap %s/%s not found: kubeadm did not create this cluster, or the ConfigMap was deleted; pass a "+
			"ClusterConfiguration with --config (component plan, component apply, config upload)",
			metav1.NamespaceSystem, KubeadmConfigMap)
	case input.Cluster != nil:
		d.endpoint = input.Endpoint
	}

	// The server in kube-proxy's kubeconfig stays valid while
	// controlPlaneEndpoint does not change.
	if existing.Configuration != nil && d.cluster.ControlPlaneEndpoint == existing.Configuration.ControlPlaneEndpoint {
		d.endpoint = cmp.Or(d.endpoint, existing.ProxyServer)
	}

	d.endpoint = cmp.Or(d.endpoint, existing.Endpoint)

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
		change.Action, change.Why = Regenerate, fmt.Sprintf("%s has a ClusterConfiguration but no %s: a generated one replaces the %s one",
			d.input.File, c.Kind, change.Origin)
	case old != nil && change.Origin != Generated:
		change.Action, change.Why, change.Next = Keep, change.OriginReason, change.Current
		return change, nil
	case old != nil && d.input.Cluster != nil:
		change.Action, change.Why = Regenerate, fmt.Sprintf("generated and not edited; now generated from the ClusterConfiguration in %s",
			d.input.File)
	case old != nil:
		change.Action, change.Why = Regenerate, "generated and not edited"
	case c.Tier == AddOn && d.cluster.Proxy.Disabled:
		change.Action, change.Why = Skip, "not installed: disabled in the ClusterConfiguration"
		return change, nil
	case c.Tier == AddOn && d.input.Cluster == nil && !d.options.Init && d.current.ProxyImage == "":
		change.Action, change.Why = Skip, fmt.Sprintf("not installed: neither ConfigMap nor DaemonSet %s/%s exists", metav1.NamespaceSystem,
			c.Name)
		return change, nil
	default:
		change.Action, change.Why = Generate, fmt.Sprintf("ConfigMap %s/%s does not exist", metav1.NamespaceSystem, c.ConfigMap)
	}

	generated, err := generate(c, d.cluster, d.endpoint)
	if err != nil {
		return change, err
	}

	change.Next = []byte(generated.Data[c.Key])
	change.Write = newWrite(old, generated)
	change.same = old != nil && change.Origin == Generated && sameMeaning(c, old, generated)

	return change, nil
}

// sameMeaning reports whether two ConfigMaps with the configuration of c differ
// in nothing but order, comments and zero values.
func sameMeaning(c Component, a, b *corev1.ConfigMap) bool {
	return maps.EqualFunc(a.Data, b.Data, func(a, b string) bool {
		was, err1 := Fields([]byte(a))
		is, err2 := Fields([]byte(b))
		return err1 == nil && err2 == nil && reflect.DeepEqual(WithoutZeroes(c, was), WithoutZeroes(c, is))
	}) && len(a.BinaryData)+len(b.BinaryData) == 0
}

// proxyWarnings returns warnings about contradictions between kube-proxy's
// configuration and its DaemonSet.
func (d *decider) proxyWarnings(old *corev1.ConfigMap) []string {
	_, inFile := d.input.Configs["kube-proxy"]
	switch {
	case d.cluster.Proxy.Disabled && (old != nil || inFile):
		return []string{"disabled in the ClusterConfiguration but configured: kubeadm ignores the configuration"}
	case !d.options.Init && !d.cluster.Proxy.Disabled && d.current.ProxyImage == "" && (old != nil || inFile || d.input.Cluster != nil):
		return []string{"DaemonSet kube-system/kube-proxy, which reads the configuration, does not exist"}
	}

	return nil
}

// replace stores the user's document, unsigned. The ConfigMap's other keys
// stay, or are generated.
func (d *decider) replace(change Change, old *corev1.ConfigMap, document Document) (Change, error) {
	c := change.Component
	change.Action, change.Next = Replace, document.Text
	change.Why = fmt.Sprintf("from %s", document.Place)
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

// warnAboutOmissions compares a document with the generated configuration, and
// warns about fields that it lacks.
func (c *Change) warnAboutOmissions(cc *ClusterConfiguration, document Document) error {
	text, err := derive(c.Component, cc)
	if err != nil {
		return err
	}

	derived, err := Fields([]byte(text))
	if err != nil {
		return fmt.Errorf("the generated configuration: %w", err)
	}

	supplied, err := Fields(document.Text)
	if err != nil {
		return fmt.Errorf("%s: %w", document.Place, err)
	}

	stored, _ := Fields(c.Current) // none: nothing can be lost
	absent := missingFields(derived, stored)
	missing := missingFields(derived, supplied)
	if lost := slices.DeleteFunc(slices.Clone(missing), func(field string) bool { return slices.Contains(absent, field) }); len(lost) > 0 {
		c.Loss = fmt.Sprintf("%s lacks fields that ConfigMap %s/%s has and that kubeadm sets: %s",
			document.Place, metav1.NamespaceSystem, c.Component.ConfigMap, strings.Join(lost, ", "))
	}

	if len(missing) > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%s lacks fields that a generated configuration has, and nothing adds them: %s (see config "+
			"print component-defaults)",
			document.Place, strings.Join(missing, ", ")))
	} else if reflect.DeepEqual(derived, supplied) {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%s equals the generated configuration: stored as user-supplied, it no longer changes at "+
			"upgrades; without it, every upgrade generates a new one",
			document.Place))
	}

	return nil
}

// missingFields returns the paths of fields that one document has, and the
// other lacks or has as null.
func missingFields(of, in map[string]any) (all []string) {
	for _, d := range payload.Diff(of, in) {
		if d.Local == payload.Unset {
			all = append(all, d.Field)
		}
	}

	return all
}

// clusterConfiguration returns the Write of the file's ClusterConfiguration.
// kubernetesVersion stays the cluster's, because it is the version of the
// control plane and of the next node that joins; only kubeadm changes it.
func (d *decider) clusterConfiguration() (*Write, error) {
	if d.input.Cluster == nil {
		return nil, nil
	}

	text := d.input.Cluster.Document
	old := d.current.ConfigMaps[KubeadmConfigMap]
	is := d.current.Configuration.version() // the control plane's
	switch {
	case is == "" && d.input.Cluster.KubernetesVersion == "":
		return nil, fmt.Errorf("the ClusterConfiguration in %s has no kubernetesVersion, and neither has ConfigMap %s/%s: add the field",
			d.input.File, metav1.NamespaceSystem, KubeadmConfigMap)
	case is != "" && is != d.input.Cluster.KubernetesVersion:
		fields, err := Fields(text)
		if err == nil {
			fields["kubernetesVersion"] = is
			text, err = yaml.Marshal(fields)
		}

		if err != nil {
			return nil, fmt.Errorf("the ClusterConfiguration in %s: %w", d.input.File, err)
		}
	}

	empty := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: KubeadmConfigMap}
	next := cmp.Or(old.DeepCopy(), &corev1.ConfigMap{ObjectMeta: empty})
	if next.Data == nil {
		next.Data = map[string]string{}
	}

	next.Data[KubeadmConfigKey] = string(text)

	return newWrite(old, next), nil
}

// newWrite returns the Write that turns one ConfigMap into another, nil if
// their content is equal.
func newWrite(old, desired *corev1.ConfigMap) *Write {
	if contentDigest(old) == contentDigest(desired) {
		return nil
	}

	return &Write{Old: old, New: desired}
}

// whyUnreadable returns why text is not a configuration of the component; "" if
// the component can validate it.
func whyUnreadable(c Component, text []byte) string {
	fields, err := Fields(text)
	switch {
	case err != nil:
		return fmt.Sprintf("it cannot be parsed: %v", err)
	case fields["kind"] != c.Kind || !strings.HasPrefix(apiVersionOf(text), c.Group+"/"):
		return fmt.Sprintf("it is %[3]v of %[4]v, not %[1]s of %[2]s", c.Kind, c.Group, fields["kind"], fields["apiVersion"])
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

// Defaults returns the generated configurations of the named components, or of
// all if names is empty, as YAML documents. They are generated from the file's
// ClusterConfiguration, from kubeadm's defaults if it has only an
// InitConfiguration, or else from the cluster's (proposal: "kubeadm alpha
// config print component-defaults"). The error says what is missing.
func Defaults(existing *Cluster, input *Input, names []string) ([]byte, error) {
	if input != nil && input.Cluster == nil && input.Init {
		cc, err := parseClusterConfiguration([]byte("apiVersion: " + kubeadmV1beta4 + "\nkind: " + kindClusterConfiguration))
		if err != nil {
			return nil, err
		}

		input = &Input{File: input.File, Cluster: cc}
	}

	d, err := newDecider(existing, input, Options{})
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
