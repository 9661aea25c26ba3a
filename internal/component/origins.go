// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Origin is the source of a field of an effective configuration.
type Origin string

// The origins. A field with its default value has none.
const (
	OriginFlag   Origin = "flag"    // the kubelet's command line
	OriginDropin Origin = "drop-in" // a candidate that is merged over the local configuration
	OriginRemote Origin = "remote"  // a candidate that is a whole configuration
	OriginLocal  Origin = "local"   // the node's own file or drop-in directory
)

// layer is one of the files that the kubelet merges, used to find the origin of
// a field.
type layer struct {
	fields map[string]any
	origin Origin
	// anyCase: names match in any case, as in every drop-in. Check rejects
	// payloads with other spellings earlier.
	anyCase bool
}

func newLayer(data []byte, origin Origin) (layer, error) {
	l := layer{origin: origin}
	var err error
	if l.fields, err = payload.DecodeMapping(data); err == nil {
		return l, nil
	}
	// A kubelet accepts more than evenkeel accepts as payload, such as
	// duplicate keys.
	if refused := payload.CheckLimits(data); refused != nil {
		return l, refused
	}
	if err := yaml.Unmarshal(data, &l.fields); err != nil {
		return l, errors.New(oneLine(err.Error()))
	}

	return l, nil
}

// localLayers reads the files of the local configuration: the configuration
// file, then the node's own drop-ins.
func (k *Kubelet) localLayers(run RunConfig) ([]layer, error) {
	var layers []layer
	if file, _ := k.sources(run); file != "" {
		data, err := atomicfile.ReadBounded(file, maxLocalBytes)
		if err != nil {
			return nil, err
		}

		l, err := newLayer(data, OriginLocal)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}

		layers = append(layers, l)
	}

	nodeFiles, err := k.nodeDropins(run)
	if err != nil {
		return nil, err
	}

	for _, d := range nodeFiles {
		l, err := newLayer(d.data, OriginLocal)
		if err != nil {
			return nil, fmt.Errorf("the node's own drop-in %s: %w", d.name, err)
		}

		l.anyCase = true
		layers = append(layers, l)
	}

	return layers, nil
}

// find returns the value of a field in this layer, nil if it is null.
func (l layer) find(path []segment) (value any, said bool) {
	value = l.fields
	for _, s := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			return value, true // it also replaces everything below
		}

		s.exact = !l.anyCase
		if value, ok = s.in(fields); !ok {
			return nil, false
		}
	}

	return value, true
}

// lookupLayers returns the value of a field in the topmost layer that sets it;
// nil if it is null or not set.
func lookupLayers(layers []layer, path []segment) (any, Origin) {
	for _, l := range slices.Backward(layers) {
		if value, said := l.find(path); said {
			return value, l.origin
		}
	}

	return nil, ""
}

// verbosity returns what logging.verbosity would be without the -v=5 of the dry
// run; nil if unknown.
func (k *Kubelet) verbosity(config configuration, nodeFlags bool) any {
	if v, given := last(k.flags, "v"); given && nodeFlags {
		if _, err := strconv.ParseInt(v, 10, 32); err == nil {
			return json.Number(v)
		}

		return nil
	}

	layers, err := config.layers()
	if err != nil {
		return nil
	}

	switch value, _ := lookupLayers(layers, splitPath("logging.verbosity")); v := value.(type) {
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

// setVerbosity returns a printed configuration with the result of verbosity.
func (k *Kubelet) setVerbosity(e Effective, config configuration, nodeFlags bool) Effective {
	logging, ok := e["logging"].(map[string]any)
	if !ok {
		return e
	}

	e, logging = maps.Clone(e), maps.Clone(logging)
	e["logging"] = logging
	if logging["verbosity"] = k.verbosity(config, nodeFlags); logging["verbosity"] == nil {
		delete(logging, "verbosity")
	}

	return e
}

// addOrigins sets the origins of fields and the overridden fields of a
// candidate, or what is assumed of a configuration that was not printed. bare
// is the result of the run without the node's flags, which is empty if no flag
// sets a field.
func (h *DryRunner) addOrigins(v *Verdict, config configuration, bare result) {
	if v.Effective == nil {
		v.Assumed = h.k.assumed(config)
	}

	c := comparison{withFlags: v.Effective, withoutFlags: bare.effective, flaggedHeaders: h.k.flagsHeaders()}
	if !h.k.setsConfig() {
		c.withoutFlags = h.k.setVerbosity(v.Effective, config, false) // -v is the only flag of every dry run
	}

	if c.withFlags == nil || c.withoutFlags == nil {
		why := cmp.Or(bare.message, "the kubelet did not print its configuration")
		v.Warnings = append(v.Warnings, clip("cannot tell which fields are overridden by flags: "+why, maxMessage))
		return
	}

	layers, err := config.layers()
	if err != nil {
		v.Warnings = append(v.Warnings, clip("cannot tell where fields come from: "+err.Error(), maxMessage))
	} else {
		v.Origins = c.origins(layers)
	}

	if config.payload == nil {
		return
	}
	if payload, err := config.payload(); err == nil {
		v.Overridden = c.overridden(payload)
	}
}

// addLocal sets the effective local configuration, which was printed at the
// same time.
func (c *check) addLocal(v *Verdict, local result) {
	v.Local = local.effective
	if v.Local == nil {
		why := cmp.Or(local.message, "the kubelet did not print it")
		v.Warnings = append(v.Warnings, clip("the effective local configuration is unknown: "+why, maxMessage))
	}

	v.Hidden = c.maskedDifferences(v.Effective, v.Local)
}

// comparison has one configuration as printed by the kubelet with the node's
// flags and without.
type comparison struct {
	withFlags, withoutFlags Effective
	flaggedHeaders          bool // printed values are masked, so they look equal
}

// flagSets reports whether the node's flags change a field.
func (c comparison) flagSets(path []segment, value any) bool {
	if c.flaggedHeaders && path[0].name == headerField {
		return true
	}

	bare, known := c.withoutFlags.field(path)

	return !known || !reflect.DeepEqual(value, bare)
}

// overridden returns the fields of the payload that a flag overrides, sorted.
func (c comparison) overridden(payload layer) []string {
	var fields []string
	leaves(payload.fields, nil, func(path []segment, _ any) {
		is, _ := c.withFlags.field(path)
		if _, known := c.withoutFlags.field(path); known && c.flagSets(path, is) {
			fields = append(fields, joinPath(path))
		}
	})
	slices.Sort(fields)

	return fields
}

func (c comparison) origins(layers []layer) map[string]Origin {
	origins := map[string]Origin{}
	leaves(c.withFlags, nil, func(path []segment, value any) {
		if c.flagSets(path, value) {
			origins[joinPath(path)] = OriginFlag
		} else if said, origin := lookupLayers(layers, path); said != nil {
			origins[joinPath(path)] = origin
		}
	})

	return origins
}

// headerField is the field whose values the kubelet masks in its dump.
const headerField = "staticPodURLHeader"

// flagsHeaders reports whether a flag replaces all static pod URL headers.
func (k *Kubelet) flagsHeaders() bool {
	_, given := last(k.flags, "manifest-url-header")
	return given
}

// headers returns the merged static pod URL headers of layers; false if they
// cannot be determined.
func headers(layers []layer) (map[string]any, bool) {
	merged := map[string]any{}
	for _, l := range layers {
		for name, value := range l.fields {
			switch given, ok := value.(map[string]any); {
			case !strings.EqualFold(name, headerField), name != headerField && !l.anyCase:
			case name != headerField:
				return nil, false // Go's JSON decoder decides which spelling wins
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

// maskedDifferences returns the static pod URL headers that differ, or may
// differ, from the local configuration. Their values never leave this package.
func (c *check) maskedDifferences(printed, printedLocal Effective) []string {
	if c.h.k.flagsHeaders() {
		return nil // the flag sets them in both
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

// knownHeaders returns the static pod URL headers of a configuration; false if
// they cannot be determined.
func knownHeaders(s configuration) (map[string]any, bool) {
	layers, err := s.layers()
	if err != nil {
		return nil, false
	}

	return headers(layers)
}
