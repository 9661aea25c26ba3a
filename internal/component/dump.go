package component

import (
	"maps"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// A kubelet of Kubernetes writes its effective configuration, the dump, to its log. The log is no API: the message, the
// key, the names and the encoding have changed between versions, and the encoding follows logging.format. So the dump is
// recognized by its structure: it is the one value of a log record that is a mapping with at least the fields which the
// same binary dumps for an empty configuration.

// dumpShape is what is known of the dump of one binary. nil: this binary prints none that can be recognized.
type dumpShape struct {
	fields []string // names of the API, sorted: what every dump of this binary has
	// omitted are the paths of fields that this binary leaves out when they are zero, with their zero values.
	omitted map[string]any
}

// maxDump is the longest value that is decoded, in bytes: a payload of 1 MiB is dumped in less.
const maxDump = 4 << 20

// anchors are fields with defaults that every kubelet dumps. They find the dump of the empty configuration.
var anchors = []string{"authentication", "authorization", "containerRuntimeEndpoint", "healthzPort", "maxPods"}

// emptyFields is a configuration that says nothing, but for what keeps a dry run away from the host. Its
// containerRuntimeEndpoint is found again in its dump.
func emptyFields(apiVersion, endpoint string) map[string]any {
	return map[string]any{
		"apiVersion": apiVersion,
		"kind":       payload.KubeletKind,
		// Without this no configuration is accepted on a host with cgroup v1.
		"failCgroupV1": false,
		// There is none: a kubelet that does not stop where it should cannot go far.
		"containerRuntimeEndpoint": endpoint,
	}
}

// mayBeDump reports whether a value mentions all anchors, in any case, so that it is worth decoding.
func mayBeDump(value string) bool {
	lower := strings.ToLower(value)
	return !slices.ContainsFunc(anchors, func(name string) bool { return !strings.Contains(lower, strings.ToLower(name)) })
}

// theDump returns the one of the values that is a mapping with all fields, in the names of the API; nil if there is none,
// or more than one. omits reports whether it was written in the API's form, which leaves out what is zero, and not as the
// Go struct that a kubelet has.
func theDump(values []string, fields []string) (e Effective, omits bool) {
	if len(values) >= maxDumps || slices.ContainsFunc(values, func(value string) bool { return len(value) > maxDump }) {
		return nil, false
	}
	var found Effective
	for _, value := range values {
		decoded, err := payload.Mapping([]byte(value))
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
		_, omits = decoded[anchors[0]]
	}
	return found, omits
}

// dumpOfEmpty returns the one of the values that is the dump of an empty configuration with an endpoint, as theDump does;
// nil if none is.
func dumpOfEmpty(values []string, endpoint string) (e Effective, omits bool) {
	if e, omits = theDump(values, anchors); e.String("containerRuntimeEndpoint") != endpoint {
		return nil, false
	}
	return e, omits
}

// shapeOf returns what the dump of an empty configuration shows of a binary; nil if it is none.
func shapeOf(values []string, endpoint string) *dumpShape {
	e, omits := dumpOfEmpty(values, endpoint)
	if e == nil {
		return nil
	}
	s := &dumpShape{omitted: map[string]any{}}
	for path, zero := range payload.Zeros {
		if _, printed := e.Field(path); omits && !printed {
			s.omitted[path] = zero
		}
	}
	s.fields = slices.Sorted(maps.Keys(withoutType(e)))
	return s
}

// probe returns a configuration whose dump lacks what this binary leaves out although it has a default: lists and mappings
// that are empty, and what only a beta feature gate sets.
func (s *dumpShape) probe(empty Effective, fields map[string]any) map[string]any {
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

// learn takes out of the fields that every dump has those that are not in the dump of the probe.
func (s *dumpShape) learn(values []string, endpoint string) {
	e, _ := dumpOfEmpty(values, endpoint)
	if e == nil {
		return
	}
	s.fields = slices.DeleteFunc(s.fields, func(name string) bool { _, printed := e[name]; return !printed })
}

// read returns the dump among the values, with zero values for the fields that this binary leaves out; nil if there is
// none, or more than one.
func (s *dumpShape) read(values []string) Effective {
	if s == nil {
		return nil
	}
	e, _ := theDump(values, s.fields)
	if e == nil {
		return nil
	}
	e = withoutType(e)
	for path, zero := range s.omitted {
		setMissing(e, splitPath(path), zero)
	}
	return e
}

// withoutType takes out what is no field: a kubelet of 1.30 prints kind and apiVersion if it was given drop-ins, one of
// 1.37 always.
func withoutType(e Effective) Effective {
	delete(e, "apiVersion")
	delete(e, "kind")
	return e
}

// setMissing sets a field that is not there, if what it is part of is.
func setMissing(fields map[string]any, path []segment, value any) {
	for _, s := range path[:len(path)-1] {
		inner, ok := fields[s.name].(map[string]any)
		if !ok {
			return
		}
		fields = inner
	}
	if name := path[len(path)-1].name; fields[name] == nil {
		fields[name] = value
	}
}
