package component

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// Origin is where a field of an effective configuration comes from.
type Origin string

// The origins. What has its default has none.
const (
	OriginFlag   Origin = "flag"    // the kubelet's command line
	OriginDropin Origin = "drop-in" // a candidate that is laid over the local configuration
	OriginRemote Origin = "remote"  // a candidate that is a whole configuration
	OriginLocal  Origin = "local"   // the node's own file, or its own drop-in directory
)

// layer is one file of a configuration. The kubelet merges them; here they only tell who said what.
type layer struct {
	fields map[string]any
	origin Origin
	// anyCase: names count in any case, as in every drop-in. One of ours that has another case never gets this far.
	anyCase bool
}

func newLayer(data []byte, origin Origin) (layer, error) {
	l := layer{origin: origin}
	var err error
	if l.fields, err = payload.Mapping(data); err == nil {
		return l, nil
	}
	// A kubelet takes more than is taken of a payload, such as a key that is there twice.
	if refused := payload.Limits(data); refused != nil {
		return l, refused
	}
	if err := yaml.Unmarshal(data, &l.fields); err != nil {
		return l, errors.New(oneLine(err.Error()))
	}
	return l, nil
}

// localLayers reads what the kubelet merges for the local configuration: the file, then the node's own drop-ins.
func (k *Kubelet) localLayers(run Run) ([]layer, error) {
	var layers []layer
	if file, _ := k.sources(run); file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		l, err := newLayer(data, OriginLocal)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		layers = append(layers, l)
	}
	own, err := k.ownDropins(run)
	if err != nil {
		return nil, err
	}
	for _, d := range own {
		l, err := newLayer(d.data, OriginLocal)
		if err != nil {
			return nil, fmt.Errorf("the node's own drop-in %s: %w", d.name, err)
		}
		l.anyCase = true
		layers = append(layers, l)
	}
	return layers, nil
}

// find returns what a layer says of a field; nil, if it says null.
func (l layer) find(path []segment) (value any, said bool) {
	value = l.fields
	for _, s := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			return value, true // it says so of all that would be below
		}
		s.exact = !l.anyCase
		if value, ok = s.in(fields); !ok {
			return nil, false
		}
	}
	return value, true
}

// topmost returns what the topmost of the layers that say anything says of a field; nil if that is null or none does.
func topmost(layers []layer, path []segment) (any, Origin) {
	for _, l := range slices.Backward(layers) {
		if value, said := l.find(path); said {
			return value, l.origin
		}
	}
	return nil, ""
}

// verbosity is what logging.verbosity would be without the -v=5 of the dry run; nil, if that is not known.
func (k *Kubelet) verbosity(of setup, nodeFlags bool) any {
	if v, given := last(k.flags, "v"); given && nodeFlags {
		if _, err := strconv.ParseInt(v, 10, 32); err == nil {
			return json.Number(v)
		}
		return nil
	}
	layers, err := of.layers()
	if err != nil {
		return nil
	}
	switch value, _ := topmost(layers, splitPath("logging.verbosity")); v := value.(type) {
	case nil:
		return json.Number("0")
	case json.Number:
		return v
	case float64:
		return json.Number(strconv.FormatInt(int64(v), 10))
	default:
		return nil
	}
}

// setVerbosity lays the answer of verbosity over a printed configuration.
func (k *Kubelet) setVerbosity(e Effective, of setup, nodeFlags bool) Effective {
	logging, ok := e["logging"].(map[string]any)
	if !ok {
		return e
	}
	e, logging = maps.Clone(e), maps.Clone(logging)
	e["logging"] = logging
	if logging["verbosity"] = k.verbosity(of, nodeFlags); logging["verbosity"] == nil {
		delete(logging, "verbosity")
	}
	return e
}

// explain says which fields of a configuration come from where, and which of a candidate's are overridden. bare is the
// answer of the run without the node's flags; where no flag sets anything there was none.
func (h *Harness) explain(v *Verdict, of setup, bare answer) {
	c := comparison{with: v.Effective, bare: bare.effective, flaggedHeaders: h.k.flagsHeaders()}
	if !h.k.setsConfig() {
		c.bare = h.k.setVerbosity(v.Effective, of, false) // the one flag that every dry run has
	}
	if c.with == nil || c.bare == nil {
		why := bare.words
		if why == "" {
			why = "the kubelet did not print its configuration"
		}
		v.Warnings = append(v.Warnings, clip("which fields are overridden by flags is unknown: "+why, maxWords))
		return
	}
	layers, err := of.layers()
	if err != nil {
		v.Warnings = append(v.Warnings, clip("where fields come from is unknown: "+err.Error(), maxWords))
	} else {
		v.Origins = c.origins(layers)
	}
	if of.payload == nil {
		return
	}
	if payload, err := of.payload(); err == nil {
		v.Overridden = c.overridden(payload)
	}
}

// explainLocal takes the answer of the local configuration, as it is now.
func (c *check) explainLocal(v *Verdict, local answer) {
	v.Local = local.effective
	if v.Local == nil {
		why := local.words
		if why == "" {
			why = "the kubelet did not print it"
		}
		v.Warnings = append(v.Warnings, clip("what the local configuration amounts to is unknown: "+why, maxWords))
	}
	v.Hidden = c.hidden(v.Effective, v.Local)
}

// comparison is what the kubelet makes of one configuration with the node's flags and without.
type comparison struct {
	with, bare     Effective
	flaggedHeaders bool // masked, they look alike
}

// flagSets tells whether a field is not what it would be without the node's flags.
func (c comparison) flagSets(path []segment, value any) bool {
	if c.flaggedHeaders && path[0].name == headerField {
		return true
	}
	would, known := c.bare.field(path)
	return !known || !reflect.DeepEqual(value, would)
}

// overridden returns the fields of the payload that a flag overrides, sorted.
func (c comparison) overridden(payload layer) []string {
	var fields []string
	leaves(payload.fields, nil, func(path []segment, _ any) {
		is, _ := c.with.field(path)
		if _, known := c.bare.field(path); known && c.flagSets(path, is) {
			fields = append(fields, joinPath(path))
		}
	})
	slices.Sort(fields)
	return fields
}

func (c comparison) origins(layers []layer) map[string]Origin {
	origins := map[string]Origin{}
	leaves(c.with, nil, func(path []segment, value any) {
		if c.flagSets(path, value) {
			origins[joinPath(path)] = OriginFlag
		} else if said, origin := topmost(layers, path); said != nil {
			origins[joinPath(path)] = origin
		}
	})
	return origins
}

// headerField is the field whose values the kubelet masks when it prints its configuration.
const headerField = "staticPodURLHeader"

// flagsHeaders tells whether a flag replaces all static pod URL headers.
func (k *Kubelet) flagsHeaders() bool {
	_, given := last(k.flags, "manifest-url-header")
	return given
}

// headers returns the static pod URL headers that the kubelet makes of layers; false if that cannot be known.
func headers(layers []layer) (map[string]any, bool) {
	merged := map[string]any{}
	for _, l := range layers {
		for name, value := range l.fields {
			switch given, ok := value.(map[string]any); {
			case !strings.EqualFold(name, headerField), name != headerField && !l.anyCase:
			case name != headerField:
				return nil, false // which of two spellings wins is Go's affair
			case value == nil:
				merged = map[string]any{}
			case !ok:
				return nil, false
			default:
				maps.Copy(merged, given)
				maps.DeleteFunc(merged, func(_ string, v any) bool { return v == nil })
			}
		}
	}
	return merged, true
}

// hidden returns the static pod URL headers that are not as they are locally, or not known to be. The values stay here.
func (c *check) hidden(printed, printedLocal Effective) []string {
	if c.h.k.flagsHeaders() {
		return nil // there and here
	}
	if c.candidate.run.Dropin && !c.setsHeaders() {
		return nil
	}
	is, known := knownHeaders(c.candidate)
	was, wasKnown := knownHeaders(c.local)
	known = known && wasKnown
	if !known && (printed == nil || printedLocal == nil) {
		return []string{headerField}
	}
	shown, _ := printed[headerField].(map[string]any)
	shownLocal, _ := printedLocal[headerField].(map[string]any)
	var fields []string
	for _, headers := range []map[string]any{is, was, shown, shownLocal} {
		for name := range headers {
			if !known || is[name] == nil || !reflect.DeepEqual(is[name], was[name]) {
				fields = append(fields, joinPath([]segment{{name: headerField}, {name: name}}))
			}
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

func (c *check) setsHeaders() bool {
	l, err := c.candidate.payload()
	_, sets := l.fields[headerField]
	return sets || err != nil
}

// knownHeaders returns the static pod URL headers of a configuration; false if they cannot be known.
func knownHeaders(s setup) (map[string]any, bool) {
	layers, err := s.layers()
	if err != nil {
		return nil, false
	}
	return headers(layers)
}
