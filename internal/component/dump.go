// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// A kubelet logs its effective configuration, the dump. The log is no API: the
// message, the key, the field names and the encoding differ between versions,
// and the encoding also depends on logging.format. So the dump is found by its
// structure: it is the only logged value that is a mapping with at least the
// fields that the same binary dumps for an empty configuration.

// dumpShape describes the dump of a binary. nil: the binary prints none in a
// known form.
type dumpShape struct {
	fields []string // API names, sorted, of the fields in every dump of this binary
	// omitted are the fields that this binary omits if they are zero, with
	// their zero values.
	omitted map[string]any
}

// maxDump limits the size of a decoded value, in bytes. The dump of a 1 MiB
// payload is smaller.
const maxDump = 4 << 20

// anchorFields have defaults and are in every kubelet's dump. They find the
// dump of the empty configuration.
var anchorFields = []string{"authentication", "authorization", "containerRuntimeEndpoint", "healthzPort", "maxPods"}

// emptyFields is a configuration with nothing but the fields that keep a dry
// run away from the host. Its containerRuntimeEndpoint identifies its dump.
func emptyFields(apiVersion, endpoint string) map[string]any {
	return map[string]any{
		"apiVersion": apiVersion,
		"kind":       payload.KubeletKind,
		// Without this field, every configuration is rejected on a host with
		// cgroup v1.
		"failCgroupV1": false,
		// The endpoint does not exist, so a kubelet that continues after the
		// dry run fails early.
		"containerRuntimeEndpoint": endpoint,
	}
}

// mayBeDump reports whether a value contains the names of all anchor fields, in
// any case. Only then it is decoded.
func mayBeDump(value string) bool {
	lower := strings.ToLower(value)
	return !slices.ContainsFunc(anchorFields, func(name string) bool { return !strings.Contains(lower, strings.ToLower(name)) })
}

// findDump returns the only value that is a mapping with all fields, in the
// API's names; nil if there is none or more than one. omits reports whether it
// was encoded in the API's form, which omits zero values, instead of as the
// kubelet's internal Go struct.
func findDump(values []string, fields []string) (e Effective, omits bool) {
	if len(values) >= maxDumps || slices.ContainsFunc(values, func(value string) bool { return len(value) > maxDump }) {
		return nil, false
	}

	var found Effective
	for _, value := range values {
		decoded, err := decodeDump(value)
		if err != nil {
			continue
		}

		e := Effective(payload.Canonical(decoded))
		if slices.ContainsFunc(fields, func(name string) bool { _, ok := e[name]; return !ok }) {
			continue
		}
		if found != nil {
			return nil, false
		}

		found = e
		_, omits = decoded[anchorFields[0]]
	}

	return found, omits
}

// decodeDump decodes a value that may be a dump. A kubelet prints no YAML
// aliases, but text that looks like them, for instance in a key of the payload,
// counts as too many of them. Without asterisks there are none, so they are
// replaced meanwhile.
func decodeDump(value string) (map[string]any, error) {
	fields, err := payload.DecodeMapping([]byte(value))
	if err == nil || !strings.Contains(value, "*") {
		return fields, err
	}

	asterisk := rand.Text()[:12] // no payload can contain it
	if fields, err = payload.DecodeMapping([]byte(strings.ReplaceAll(value, "*", asterisk))); err != nil {
		return nil, err
	}

	text, _ := json.Marshal(fields) // cannot fail: it was decoded from JSON

	return payload.DecodeMapping(bytes.ReplaceAll(text, []byte(asterisk), []byte("*")))
}

// findEmptyDump returns the dump of an empty configuration with this endpoint,
// see findDump; nil if there is none.
func findEmptyDump(values []string, endpoint string) (e Effective, omits bool) {
	if e, omits = findDump(values, anchorFields); e.String("containerRuntimeEndpoint") != endpoint {
		return nil, false
	}

	return e, omits
}

// shapeOf learns the form of a binary's dump from the dump of an empty
// configuration; nil if there is none.
func shapeOf(values []string, endpoint string) *dumpShape {
	e, omits := findEmptyDump(values, endpoint)
	if e == nil {
		return nil
	}

	s := &dumpShape{omitted: map[string]any{}}
	for path, zero := range payload.ZeroValues {
		if _, printed := e.Field(path); omits && !printed {
			s.omitted[path] = zero
		}
	}

	s.fields = slices.Sorted(maps.Keys(withoutType(e)))

	return s
}

// probeConfig returns a configuration whose dump does not have the fields that
// this binary omits although they have a default: empty lists and mappings, and
// fields that only a beta feature gate sets.
func (s *dumpShape) probeConfig(empty Effective, fields map[string]any) map[string]any {
	fields = maps.Clone(fields)
	for name, value := range empty {
		if _, given := fields[name]; given || payload.IsStruct(name) {
			continue
		}

		switch value.(type) {
		case []any:
			fields[name] = []any{}
		case map[string]any:
			fields[name] = map[string]any{}
		}
	}

	fields["featureGates"] = map[string]any{"AllBeta": false}

	return fields
}

// learn removes the fields that are not in the dump of the probe configuration.
func (s *dumpShape) learn(values []string, endpoint string) {
	e, _ := findEmptyDump(values, endpoint)
	if e == nil {
		return
	}

	s.fields = slices.DeleteFunc(s.fields, func(name string) bool { _, printed := e[name]; return !printed })
}

// read returns the dump among the values, and adds zero values for omitted
// fields; nil if there is none or more than one.
func (s *dumpShape) read(values []string) Effective {
	if s == nil {
		return nil
	}

	e, _ := findDump(values, s.fields)
	if e == nil {
		return nil
	}

	e = withoutType(e)
	for path, zero := range s.omitted {
		segments := splitPath(path)
		parent, name := segments[:len(segments)-1], segments[len(segments)-1].name
		found, _ := e.field(parent)
		if fields, ok := found.(map[string]any); ok && fields[name] == nil {
			fields[name] = zero
		}
	}

	return e
}

// withoutType removes kind and apiVersion, which kubelets print from 1.37 on.
func withoutType(e Effective) Effective {
	delete(e, "apiVersion")
	delete(e, "kind")
	return e
}
