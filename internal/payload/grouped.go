// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Keys of the grouped form that are not groups.
const (
	keyAPIVersion = "apiVersion"
	keyKind       = "kind"
	keyTrial      = "trial"
	keyUngrouped  = "ungrouped" // only in output
)

// group is a mapping of the grouped form, with fields of the upstream type and
// subgroups.
type group struct {
	path   string
	groups map[string]*group
	fields map[string]*name
}

// at returns the group at a path below g, and creates it if necessary.
func (g *group) at(path string) *group {
	for part := range strings.SplitSeq(path, ".") {
		next := g.groups[part]
		if next == nil {
			next = &group{path: join(g.path, part), groups: map[string]*group{}, fields: map[string]*name{}}
			g.groups[part] = next
		}

		g = next
	}

	return g
}

// merges reports whether a struct has the same name as the group, so that the
// struct's fields are in the group directly.
func (g *group) merges(field *name) bool { return field.inner != nil && last(g.path) == field.path }

// topGroup is the grouped form. groupOf maps the top-level fields of the
// upstream type to their groups.
var topGroup, groupOf = func() (*group, map[string]*group) {
	top, homes := &group{groups: map[string]*group{}}, map[string]*group{}
	for _, f := range Fields {
		key, _, _ := strings.Cut(f.Path, ".")
		if homes[key] != nil {
			continue
		}

		field, home := names.inner[key], top.at(f.Group)
		homes[key] = home
		if home.merges(field) {
			maps.Copy(home.fields, field.inner)
		} else {
			home.fields[key] = field
		}
	}

	return top, homes
}()

// groupedPaths are the full paths by name in the grouped form: groups, their
// fields, and the trial.
var groupedPaths = func() map[string]string {
	places := map[string]string{keyTrial: keyTrial}
	var visit func(g *group)
	visit = func(g *group) {
		for key := range g.fields {
			places[key] = join(g.path, key)
		}

		for key, inner := range g.groups {
			places[key] = inner.path
			visit(inner)
		}
	}
	visit(topGroup)

	return places
}()

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func last(path string) string { return path[strings.LastIndex(path, ".")+1:] }

// TopField returns the first name of a path: "evictionHard" of
// "evictionHard[memory.available]". A path that begins with a dot or a bracket
// is no field's, and stays whole.
func TopField(path string) string {
	if end := strings.IndexAny(path, ".["); end > 0 {
		return path[:end]
	}

	return path
}

// GroupedPath returns the path in the grouped form for an upstream path, which
// may end in a mapping: "resources.eviction.evictionHard[memory.available]".
func GroupedPath(path string) string {
	top := TopField(path)
	rest := strings.TrimPrefix(path[len(top):], ".")
	group := groupOf[top]
	if group == nil {
		return path
	}
	if group.merges(names.inner[top]) {
		return join(group.path, rest)
	}

	return join(group.path, path)
}

// Group returns the grouped form of upstream fields and shares values with it.
// Fields that are not in the table are under the key "ungrouped", which is not
// allowed in a payload.
func Group(fields map[string]any) map[string]any {
	grouped := map[string]any{keyAPIVersion: GroupedAPIVersion, keyKind: KubeletKind}
	for key, value := range fields {
		group := groupOf[key]
		switch {
		case key == keyAPIVersion || key == keyKind:
		case group == nil:
			put(grouped, keyUngrouped, key, value)
		case !group.merges(names.inner[key]):
			put(grouped, group.path, key, value)
		default:
			inner, _ := value.(map[string]any)
			if len(inner) == 0 {
				put(grouped, keyUngrouped, key, value)
			}

			for k, v := range inner {
				if names.inner[key].inner[k] != nil {
					put(grouped, group.path, k, v)
				} else {
					put(grouped, keyUngrouped+"."+key, k, v)
				}
			}
		}
	}

	return grouped
}

// put sets a field in the mapping at path, and creates missing mappings.
func put(fields map[string]any, path, key string, value any) {
	for part := range strings.SplitSeq(path, ".") {
		inner, ok := fields[part].(map[string]any)
		if !ok {
			inner = map[string]any{}
			fields[part] = inner
		}

		fields = inner
	}

	fields[key] = value
}

// flatten returns the upstream fields of a grouped configuration, and sets the
// trial settings and the rules. It shares values with it, and changes them.
// Names must match exactly.
func (p *Payload) flatten(grouped map[string]any) (map[string]any, error) {
	f := flattener{fields: map[string]any{keyAPIVersion: UpstreamAPIVersion, keyKind: KubeletKind}}
	f.group(topGroup, grouped)
	slices.SortFunc(f.found, func(a, b *rule) int { // that of maxPods first
		return cmp.Or(cmp.Compare(len(a.key), 0)-cmp.Compare(len(b.key), 0), cmp.Compare(a.path(), b.path()))
	})
	maxPods, _ := integer(f.fields[fieldMaxPods]) // 0 is the kubelet's default
	for _, r := range f.found {
		if r.of == pods {
			maxPods = 1
		} else if r.perPod > 0 && maxPods <= 0 {
			f.errs.add(ProblemRule, join(r.at, "perPod"), "needs "+GroupedPath(fieldMaxPods)+" above 0 in the same configuration")
		}
	}

	if len(f.errs) > 0 {
		return nil, f.errs.err()
	}

	p.Trial, p.rules = f.trial, f.found

	return f.fields, nil
}

type flattener struct {
	fields map[string]any
	trial  v1alpha1.TrialTerms
	found  []*rule
	errs   fieldErrors
}

func (f *flattener) group(g *group, value any) {
	inner, ok := value.(map[string]any)
	if !ok {
		f.errs.add(ProblemGroup, g.path, "must be a mapping of fields, not "+describe(value))
		return
	}

	for _, key := range keys(inner) {
		below, field, value := g.groups[key], g.fields[key], inner[key]
		path := join(g.path, pathPart(key))
		switch {
		case below != nil:
			f.group(below, value)
		case field != nil:
			f.names(field, path, value)
			value = f.rules(key, value)
			if outer, _, nested := strings.Cut(field.path, "."); nested {
				put(f.fields, outer, key, value)
			} else {
				f.fields[key] = value
			}
		case g == topGroup && (key == keyAPIVersion || key == keyKind):
		case g == topGroup && key == keyTrial:
			f.trial = f.errs.trial(value)
		case g == topGroup && key == keyUngrouped:
			f.errs.add(ProblemGroup, path, "is only for output of fields without a group; use the upstream form ("+UpstreamAPIVersion+
				") to set them")
		default:
			f.errs.add(ProblemGroup, path, unknown(key, slices.Concat(keys(g.fields), keys(g.groups)), g.path))
		}
	}
}

// names checks the names in a struct or in a list of structs. The kubelet
// checks the types of values.
func (f *flattener) names(n *name, path string, value any) {
	if n.inner == nil {
		return
	}

	switch v := value.(type) {
	case map[string]any:
		for _, key := range keys(v) {
			if inner := n.inner[key]; inner != nil {
				f.names(inner, join(path, key), v[key])
			} else {
				f.errs.add(ProblemGroup, join(path, pathPart(key)), unknown(key, keys(n.inner), path))
			}
		}
	case []any:
		for i := range v {
			f.names(n, fmt.Sprintf("%s[%d]", path, i), v[i])
		}
	}
}

// unknown describes an unknown name and suggests which one may be meant.
func unknown(key string, known []string, at string) string {
	place := groupedPaths[key]
	switch {
	case place != "" && place == key:
		return key + " belongs at the top level"
	case place != "":
		return key + " belongs in " + strings.TrimSuffix(place, "."+key) + ": " + place
	}

	if name := Nearest(key, known); name != "" {
		return "no such field; did you mean " + join(at, name) + "?"
	}
	if name := Nearest(key, keys(groupedPaths)); name != "" {
		return "no such field; did you mean " + groupedPaths[name] + "?"
	}

	return "no such field"
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
