package kubeadm

import (
	"bytes"
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
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// MaxFile is the most bytes that a file may have. What is stored of it is smaller: a ConfigMap holds 1 MiB.
const MaxFile = 4 << 20

const (
	kubeadmGroup             = "kubeadm.k8s.io"
	kindClusterConfiguration = "ClusterConfiguration"
	kindInitConfiguration    = "InitConfiguration"
	defaultBindPort          = 6443
)

var (
	kubeadmVersions = []string{"v1beta3", "v1beta4"} // whose ClusterConfiguration and InitConfiguration are read
	// ignoredKinds are kubeadm's other kinds: they say how one node joins or is reset, or how kubeadm itself upgrades.
	ignoredKinds = []string{"JoinConfiguration", "ResetConfiguration", "UpgradeConfiguration"}
)

// Document is one of a file.
type Document struct {
	Text           []byte // as it was written, without the line that separates it from others
	APIVersion     string
	Group, Version string
	Kind           string
	Place          string // "FILE" or, of several, "FILE, document 2": for messages
}

// Documents returns the documents of a file of YAML or JSON; empty ones are left out. The error names the document that
// cannot be read.
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

// EachDocument yields what Documents returns one by one. With the error of one that cannot be read only its place is
// known; those after it are yielded all the same.
func EachDocument(file string, data []byte) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		switch {
		case len(data) > MaxFile:
			yield(Document{Place: file}, fmt.Errorf("larger than %d MiB", MaxFile>>20))
			return
		case !utf8.Valid(data): // a ConfigMap's data has to be
			yield(Document{Place: file}, errors.New("it is not in UTF-8"))
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

// split cuts data where the reader of apimachinery does, which kubeadm uses. That one rewrites the ends of lines; here
// every byte stays. A document that begins with a line "--- text" keeps it, for its reader to refuse.
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

// isEmpty tells whether there are only comments.
func isEmpty(text []byte) bool {
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\ufeff"))) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && string(line) != "..." {
			return false
		}
	}
	return true
}

// read takes over a document's text. The error says why it is no configuration.
func (d *Document) read(text []byte) error {
	fields, err := Fields(text)
	if err != nil {
		return err
	}
	header := func(name string) string {
		value, _ := fields[name].(string)
		if value == "" && err == nil {
			err = fmt.Errorf("it has no %s, or one that is no string", name)
		}
		return value
	}
	d.Text, d.APIVersion, d.Kind = text, header("apiVersion"), header("kind")
	if err != nil {
		return err
	}
	gv, err := schema.ParseGroupVersion(d.APIVersion)
	if err != nil {
		return fmt.Errorf("its apiVersion %q is none", d.APIVersion)
	}
	d.Group, d.Version = gv.Group, gv.Version
	return nil
}

// toJSON returns a document as JSON. A key twice is refused: others would read the one or the other.
func toJSON(text []byte) ([]byte, error) {
	if json.Valid(text) {
		if refused := payload.CheckLimits(text); refused != nil {
			return nil, errors.New(refused.Message)
		}
		var value any
		strict, err := kjson.UnmarshalStrict(text, &value)
		if err == nil && len(strict) > 0 {
			err = strict[0]
		}
		return text, err
	}
	if bytes.HasPrefix(text, []byte("---")) {
		return nil, errors.New("in a line that begins with --- only a comment may follow")
	}
	refused := payload.CheckOneDocument(text)
	switch {
	case refused != nil && refused.Problem == payload.ProblemDocuments:
		return nil, errors.New("another document follows it without a line --- between them")
	case refused != nil:
		return nil, errors.New(refused.Message)
	}
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " ")) // a line for each key
	}
	return asJSON, nil
}

// Fields returns the fields of one document, YAML or JSON. The error says why it is none.
func Fields(text []byte) (map[string]any, error) {
	asJSON, err := toJSON(text)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(asJSON, &fields); err != nil || fields == nil {
		return nil, errors.New("it is no mapping of fields")
	}
	return fields, nil
}

// Component returns the component that a document configures; ok is false if it is none's. Whether there is such a version
// of it, only the component knows.
func (d Document) Component() (c Component, ok bool) {
	for _, c := range Components() {
		if d.Group == c.Group && d.Kind == c.Kind {
			return c, true
		}
	}
	return Component{}, false
}

// IsKubeadmKind tells whether a document is of one of kubeadm's own kinds.
func (d Document) IsKubeadmKind() bool {
	kinds := append([]string{kindClusterConfiguration, kindInitConfiguration}, ignoredKinds...)
	return d.Group == kubeadmGroup && slices.Contains(kinds, d.Kind)
}

// IsGrouped tells whether a document is a kubelet's configuration in evenkeel's grouped form.
func (d Document) IsGrouped() bool {
	return d.APIVersion == payload.GroupedAPIVersion && d.Kind == payload.KubeletKind
}

// UnknownKindError is the error for a document that is no configuration which is known here.
func (d Document) UnknownKindError() error {
	hint := ""
	if d.Group == "" && d.Kind == "ConfigMap" {
		hint = "; give what stands under one of its keys, not the ConfigMap itself"
	}
	return fmt.Errorf("%s: %s of %s is no kubeadm or component configuration%s", d.Place, d.Kind, d.APIVersion, hint)
}

// Input is what a user gave with --config.
type Input struct {
	File     string
	Cluster  *ClusterConfiguration // nil: none
	Endpoint string                // of an InitConfiguration, host:port; "" if there is none
	Configs  map[string]Document   // component configurations by the component's name
	Notes    []string              // what was passed over
}

// ParseFile reads a file that holds a ClusterConfiguration, component configurations, or both. The error names the
// document that is wrong: one that cannot be read, of an unknown kind, or a second of its kind.
func ParseFile(file string, data []byte) (*Input, error) {
	documents, err := Documents(file, data)
	if err != nil {
		return nil, err
	}
	g := &Input{File: file, Configs: map[string]Document{}}
	first := map[schema.GroupKind]Document{}
	for _, d := range documents {
		if slices.Contains(ignoredKinds, d.Kind) && d.IsKubeadmKind() {
			g.Notes = append(g.Notes, fmt.Sprintf("%s: %s says nothing of components: it is passed over", d.Place, d.Kind))
			continue
		}
		kind := schema.GroupKind{Group: d.Group, Kind: d.Kind}
		if other, twice := first[kind]; twice {
			return nil, duplicateError(other, d)
		}
		first[kind] = d
	}
	// Only now: that there are two of a kind says more than what is wrong with one of them.
	for _, d := range documents {
		if err := g.add(d); err != nil {
			return nil, err
		}
	}
	if g.Cluster == nil && len(g.Configs) == 0 {
		return nil, fmt.Errorf("%s has neither a ClusterConfiguration nor a component's configuration", file)
	}
	return g, nil
}

// duplicateError is the error for two documents of one kind.
func duplicateError(a, b Document) error {
	if a.Version == b.Version {
		return fmt.Errorf("%s: there is a second %s, besides %s: which one is meant? Remove the other", b.Place, b.Kind, a.Place)
	}
	return fmt.Errorf("%s: there is a %s of both %s (%s) and %s: which one is meant? Remove the other",
		b.Place, b.Kind, a.Version, a.Place, b.Version)
}

// add takes over what a document says.
func (g *Input) add(d Document) error {
	component, isComponents := d.Component()
	switch {
	case isComponents:
		g.Configs[component.Name] = d
		return nil
	case d.IsGrouped():
		return fmt.Errorf("%s is in evenkeel's grouped form, which the kubelet does not read and kubeadm does not store; "+
			"turn it into upstream's with: kubectl evenkeel config convert --form=flat FILE", d.Place)
	case !d.IsKubeadmKind():
		return d.UnknownKindError()
	case slices.Contains(ignoredKinds, d.Kind):
		return nil
	case !slices.Contains(kubeadmVersions, d.Version):
		return fmt.Errorf("%s: %s of %s cannot be read, only of %s; kubeadm config migrate turns old ones into new ones",
			d.Place, d.Kind, d.APIVersion, strings.Join(kubeadmVersions, " and "))
	}
	var err error
	if d.Kind == kindInitConfiguration {
		g.Endpoint, err = endpointOf(d.Text)
	} else {
		g.Cluster, err = parseClusterConfiguration(d.Text)
	}
	if err == nil && g.Cluster != nil && len(g.Cluster.Unknown) > 0 {
		err = fmt.Errorf("a ClusterConfiguration has no field %s, as far as is known here: kubeadm config validate --config FILE tells",
			strings.Join(g.Cluster.Unknown, ", "))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.Place, err)
	}
	return nil
}

// initConfiguration is what is read of kubeadm's kind of that name.
type initConfiguration struct {
	LocalAPIEndpoint localAPIEndpoint `json:"localAPIEndpoint"`
}

type localAPIEndpoint struct {
	AdvertiseAddress string `json:"advertiseAddress"`
	BindPort         int32  `json:"bindPort"`
}

// endpointOf returns where an InitConfiguration says that this node's API server is, host:port; "" if it leaves that to
// kubeadm. The error names the field that is wrong.
func endpointOf(text []byte) (string, error) {
	asJSON, err := toJSON(text)
	if err != nil {
		return "", err
	}
	var init initConfiguration
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &init); err != nil {
		return "", fmt.Errorf("it cannot be read: %w", err)
	}
	e := init.LocalAPIEndpoint
	if e.BindPort == 0 {
		e.BindPort = defaultBindPort
	}
	switch {
	case e.AdvertiseAddress == "":
		return "", nil
	case net.ParseIP(e.AdvertiseAddress) == nil:
		return "", fmt.Errorf("its localAPIEndpoint.advertiseAddress %q is no IP address", e.AdvertiseAddress)
	case e.BindPort < 1 || e.BindPort > 65535:
		return "", fmt.Errorf("its localAPIEndpoint.bindPort %d is no port", e.BindPort)
	}
	return net.JoinHostPort(e.AdvertiseAddress, strconv.Itoa(int(e.BindPort))), nil
}
