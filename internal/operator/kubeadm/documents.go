// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// MaxFile is the largest allowed file, in bytes. A stored document is smaller:
// a ConfigMap holds 1 MiB.
const MaxFile = 4 << 20

const (
	kubeadmGroup             = "kubeadm.k8s.io"
	kindClusterConfiguration = "ClusterConfiguration"
	kindInitConfiguration    = "InitConfiguration"
	defaultBindPort          = 6443
)

var (
	kubeadmVersions = []string{"v1beta3", "v1beta4"} // supported versions of ClusterConfiguration and InitConfiguration
	// ignoredKinds are kubeadm's kinds that say nothing about components.
	ignoredKinds = []string{"JoinConfiguration", "ResetConfiguration", "UpgradeConfiguration"}
)

// Document is one YAML or JSON document of a file.
type Document struct {
	Text           []byte // as in the file, without the separating line
	APIVersion     string
	Group, Version string
	Kind           string
	Place          string // "FILE" or, of several, "FILE, document 2": for messages
}

// Documents returns the documents of a YAML or JSON file, without empty ones.
// The error names the document that cannot be parsed.
func Documents(file string, data []byte) ([]Document, error) {
	var all []Document
	for d, err := range EachDocument(file, data) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Place, err)
		}

		all = append(all, d)
	}

	return all, nil
}

// EachDocument yields the documents that Documents returns, one by one. For a
// document that cannot be parsed it yields only the place, with the error, and
// continues with the next one.
func EachDocument(file string, data []byte) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		switch {
		case len(data) > MaxFile:
			yield(Document{Place: file}, fmt.Errorf("larger than %d MiB", MaxFile>>20))
			return
		case !utf8.Valid(data): // required for a ConfigMap's data
			yield(Document{Place: file}, errors.New("it is not UTF-8"))
			return
		}

		texts := split(data)
		for i, text := range texts {
			d := Document{Place: file}
			if len(texts) > 1 {
				d.Place = fmt.Sprintf("%s, document %d", file, i+1)
			}

			err := d.read(text)
			if err != nil {
				d = Document{Place: d.Place}
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// split separates documents where apimachinery's reader, which kubeadm uses,
// separates them, but it keeps every byte, line ends too. A document that
// begins with the line "--- text" keeps that line, so that its parser rejects
// it.
func split(data []byte) [][]byte {
	var texts [][]byte
	start, at := 0, 0
	cut := func() {
		if text := data[start:at]; !isEmpty(text) {
			texts = append(texts, text)
		}

		start = at
	}
	for line := range bytes.Lines(data) {
		if rest, separates := bytes.CutPrefix(line, []byte("---")); separates {
			cut()
			if rest = bytes.TrimSpace(rest); len(rest) == 0 || rest[0] == '#' {
				start += len(line)
			}
		}

		at += len(line)
	}

	cut()

	return texts
}

// isEmpty reports whether text has nothing but comments.
func isEmpty(text []byte) bool {
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\ufeff"))) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && string(line) != "..." {
			return false
		}
	}

	return true
}

// read sets the fields from a document's text. The error says why the text is
// not a configuration.
func (d *Document) read(text []byte) error {
	fields, err := Fields(text)
	if err != nil {
		return err
	}

	header := func(name string) string {
		value, _ := fields[name].(string)
		if value == "" && err == nil {
			err = fmt.Errorf("it has no %s, or one that is not a string", name)
		}

		return value
	}
	d.Text, d.APIVersion, d.Kind = text, header("apiVersion"), header("kind")
	if err != nil {
		return err
	}

	gv, err := schema.ParseGroupVersion(d.APIVersion)
	if err != nil {
		return fmt.Errorf("its apiVersion %q is invalid", d.APIVersion)
	}

	d.Group, d.Version = gv.Group, gv.Version

	return nil
}

// Fields returns the fields of one document, YAML or JSON; numbers are
// json.Number. Duplicate keys are rejected: parsers differ in which of them
// they use. The error says why the text is not a document.
func Fields(text []byte) (map[string]any, error) {
	if bytes.HasPrefix(text, []byte("---")) {
		return nil, errors.New("only a comment may follow --- on the same line")
	}

	fields, err := payload.DecodeMapping(text)
	if payload.ProblemOf(err) == payload.ProblemDocuments {
		return nil, errors.New("another document follows without a line --- between them")
	}

	return fields, err
}

// decodeInto decodes a document into a struct, and returns all its fields.
func decodeInto(text []byte, into any) (map[string]any, error) {
	fields, err := Fields(text)
	if err != nil {
		return nil, err
	}

	asJSON, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}

	return fields, kjson.UnmarshalCaseSensitivePreserveInts(asJSON, into)
}

// Component returns the component that the document's group and kind belong to;
// ok is false if no component has them. The version is not checked: only the
// component knows its versions.
func (d Document) Component() (c Component, ok bool) {
	for _, c := range Components() {
		if d.Group == c.Group && d.Kind == c.Kind {
			return c, true
		}
	}

	return Component{}, false
}

// IsKubeadmKind reports whether the document is of one of kubeadm's own kinds.
func (d Document) IsKubeadmKind() bool {
	kinds := append([]string{kindClusterConfiguration, kindInitConfiguration}, ignoredKinds...)
	return d.Group == kubeadmGroup && slices.Contains(kinds, d.Kind)
}

// IsGrouped reports whether the document is a kubelet configuration in
// evenkeel's grouped form.
func (d Document) IsGrouped() bool {
	return d.APIVersion == payload.GroupedAPIVersion && d.Kind == payload.KubeletKind
}

// UnknownKindError returns the error for a document of an unknown kind.
func (d Document) UnknownKindError() error {
	hint := ""
	if d.Group == "" && d.Kind == "ConfigMap" {
		hint = "; pass the value of one of its keys, not the ConfigMap itself"
	}

	return fmt.Errorf("%s: %s of %s is not a kubeadm or component configuration%s", d.Place, d.Kind, d.APIVersion, hint)
}

// Input is the content of the user's file (--config).
type Input struct {
	File     string
	Cluster  *ClusterConfiguration // nil if the file has none
	Init     bool                  // whether the file has an InitConfiguration
	Endpoint string                // host:port from it; "" if there is none
	Configs  map[string]Document   // component configurations, by component name
	Notes    []string              // about ignored documents
}

// ParseFile parses a file with kubeadm's configuration, component
// configurations, or both. It fails if a document cannot be parsed, has an
// unknown kind, or is the second of its kind; the error names that document.
func ParseFile(file string, data []byte) (*Input, error) {
	documents, err := Documents(file, data)
	if err != nil {
		return nil, err
	}

	g := &Input{File: file, Configs: map[string]Document{}}
	first := map[schema.GroupKind]Document{}
	for _, d := range documents {
		if slices.Contains(ignoredKinds, d.Kind) && d.IsKubeadmKind() {
			g.Notes = append(g.Notes, fmt.Sprintf("%s: %s ignored: it does not configure components", d.Place, d.Kind))
			continue
		}

		kind := schema.GroupKind{Group: d.Group, Kind: d.Kind}
		if other, twice := first[kind]; twice {
			return nil, duplicateError(other, d)
		}

		first[kind] = d
	}

	// After that loop, because a duplicate is the more helpful error.
	for _, d := range documents {
		if err := g.add(d); err != nil {
			return nil, err
		}
	}

	if g.Cluster == nil && len(g.Configs) == 0 && !g.Init {
		return nil, fmt.Errorf("%s has neither a ClusterConfiguration nor a component configuration", file)
	}

	return g, nil
}

// duplicateError returns the error for two documents of one kind.
func duplicateError(a, b Document) error {
	if a.Version == b.Version {
		return fmt.Errorf("%s: duplicate %s, the first is %s: remove one of them", b.Place, b.Kind, a.Place)
	}

	return fmt.Errorf("%s: duplicate %s, of %s (%s) and of %s: remove one of them",
		b.Place, b.Kind, a.Version, a.Place, b.Version)
}

// add adds a document to the input.
func (g *Input) add(d Document) error {
	component, isComponents := d.Component()
	switch {
	case isComponents:
		g.Configs[component.Name] = d
		return nil
	case d.IsGrouped():
		return fmt.Errorf("%s is in evenkeel's grouped form, which kubelet and kubeadm do not read; "+
			"convert it with: kubectl evenkeel config convert --form=flat FILE", d.Place)
	case !d.IsKubeadmKind():
		return d.UnknownKindError()
	case slices.Contains(ignoredKinds, d.Kind):
		return nil
	case !slices.Contains(kubeadmVersions, d.Version):
		return fmt.Errorf("%s: %s of %s is not supported, only of %s; convert older versions with \"kubeadm config migrate\"",
			d.Place, d.Kind, d.APIVersion, strings.Join(kubeadmVersions, " and "))
	}

	var err error
	if d.Kind == kindInitConfiguration {
		g.Init = true
		g.Endpoint, err = endpointOf(d.Text)
	} else {
		g.Cluster, err = parseClusterConfiguration(d.Text)
	}

	if err == nil && g.Cluster != nil && len(g.Cluster.Unknown) > 0 {
		err = fmt.Errorf("unknown field %s in the ClusterConfiguration; check it with: kubeadm config validate --config FILE",
			strings.Join(g.Cluster.Unknown, ", "))
	}

	if err != nil {
		return fmt.Errorf("%s: %w", d.Place, err)
	}

	return nil
}

// initConfiguration has the fields of kubeadm's InitConfiguration that are
// used.
type initConfiguration struct {
	LocalAPIEndpoint localAPIEndpoint `json:"localAPIEndpoint"`
}

type localAPIEndpoint struct {
	AdvertiseAddress string `json:"advertiseAddress"`
	BindPort         int32  `json:"bindPort"`
}

// endpointOf returns the host:port of an InitConfiguration's API server; "" if
// it leaves the address to kubeadm. The error names the field that is wrong.
func endpointOf(text []byte) (string, error) {
	var init initConfiguration
	if _, err := decodeInto(text, &init); err != nil {
		return "", fmt.Errorf("it cannot be parsed: %w", err)
	}

	e := init.LocalAPIEndpoint
	e.BindPort = cmp.Or(e.BindPort, defaultBindPort)
	switch {
	case e.AdvertiseAddress == "":
		return "", nil
	case net.ParseIP(e.AdvertiseAddress) == nil:
		return "", fmt.Errorf("its localAPIEndpoint.advertiseAddress %q is not an IP address", e.AdvertiseAddress)
	case e.BindPort < 1 || e.BindPort > 65535:
		return "", fmt.Errorf("its localAPIEndpoint.bindPort %d is not a port", e.BindPort)
	}

	return net.JoinHostPort(e.AdvertiseAddress, strconv.Itoa(int(e.BindPort))), nil
}

// Tier says how a component runs, in the terms of the proposal.
type Tier string

const (
	// Core components read their configuration from files of the node.
	Core Tier = "core"
	// AddOn components are deployed in the cluster and read their configuration
	// from a ConfigMap.
	AddOn Tier = "addon"
)

// Component is a component whose configuration is in a ConfigMap of
// kube-system.
type Component struct {
	Name      string // as in package component
	Tier      Tier
	ConfigMap string // its name
	Key       string // the ConfigMap's data key that holds the configuration
	Group     string // the configuration's API group
	Kind      string // and kind
}

// Names of the other ConfigMaps of kube-system, and of their keys.
const (
	KubeadmConfigMap = "kubeadm-config"
	KubeadmConfigKey = "ClusterConfiguration"
	CoreDNSConfigMap = "coredns"
	CorefileKey      = "Corefile"
)

// Components returns the managed components, in the order in which they are
// shown and stored.
func Components() []Component {
	return []Component{
		{Name: "kubelet", Tier: Core, ConfigMap: "kubelet-config", Key: "kubelet", Group: "kubelet.config.k8s.io", Kind: "KubeletConfiguration"},
		{Name: "kube-proxy", Tier: AddOn, ConfigMap: "kube-proxy", Key: "config.conf", Group: "kubeproxy.config.k8s.io",
			Kind: "KubeProxyConfiguration"},
	}
}
