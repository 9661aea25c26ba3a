// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// gate is a protected feature gate and the reason.
type gate struct{ name, why string }

const gatesField = "featureGates"

// securityGates are the gates of kubelets 1.32 to 1.38 that expose something or
// disable a check, sorted by name. Gates of other components are missing, and
// so are gates that enable a protected field (DefaultPodSysctls).
var securityGates = []gate{
	{"AllAlpha", "switches all alpha gates, including those in this list"},
	{"AllBeta", "switches all beta gates, including those in this list"},
	{"AllowDNSOnlyNodeCSR", "requests a serving certificate without IP addresses"},
	{"AllowParsingUserUIDFromCertAuth", "changes what is read from a client certificate"},
	{"CSIServiceAccountTokenSecrets", "off: CSI drivers receive pods' tokens in a form that their logs show"},
	{"ClientsAllowCARotation", "off: the kubelet keeps trusting a CA that was replaced"},
	{"ComponentFlagz", "shows the kubelet's command line on its API"},
	{"ComponentStatusz", "shows the kubelet's build and paths on its API"},
	{"ContainerCheckpoint", "writes a container's memory to the node's disk on request"},
	{"EmptyDirVolumeMode", "off: every user in a pod can write to an emptyDir with a stricter mode"},
	{"GitRepoVolumeDriver", "runs git as root on a repository that a pod names"},
	{"KubeletAllocatedPodsEndpoint", "shows all pods on the kubelet's API"},
	{"KubeletEnsureSecretPulledImages", "off: pods may use images that they could not pull"},
	{"KubeletFineGrainedAuthz", "off: reading anything requires permission for everything"},
	{"KubeletInUserNamespace", "continues if kernel settings and limits cannot be set"},
	{"KubeletServiceAccountTokenForCredentialProviders", "changes whose credentials pull an image"},
	{"KubeletTracing", "sends traces to another host"},
	{"NodeLogQuery", "shows the logs of the node's services"},
	{"PodsAPI", "shows all pods on a socket"},
	{"PreventStaticPodAPIReferences", "off: static pods may reference Secrets and other objects"},
	{"ProcMountType", "lets pods unmask /proc"},
	{"RecursiveReadOnlyMounts", "off: mounts below a read-only mount stay writable"},
	{"ReloadKubeletClientCAFile", "off: client certificates of a replaced CA stay valid"},
	{"ReloadKubeletServerCertificateFile", "off: a replaced serving certificate stays in use"},
	{"RotateKubeletServerCertificate", "off: the serving certificate is not renewed"},
	{"SupplementalGroupsPolicy", "off: pods get groups of the image that they exclude"},
	{"UserNamespacesSupport", "off: pods lose their user namespace"},
}

// Protection is a set of fields that a payload may not change from the node's
// local configuration. The zero value protects nothing.
type Protection struct {
	// rules maps paths, including everything below them, to protected or not.
	// The longest matching path wins. If there are rules, fields that are not
	// in Fields are protected too.
	rules map[string]bool
	// limits has allowed values of paths in rules. A field named in --protected-fields
	// has none.
	limits map[string]*Limit
}

// DefaultProtection protects the fields of Fields with a Protected reason and
// the security feature gates.
func DefaultProtection() Protection {
	rules, limits := map[string]bool{}, map[string]*Limit{}
	for _, f := range Fields {
		if f.Protected != "" {
			rules[f.Path] = true
		}
		if f.Limit != nil {
			limits[f.Path] = f.Limit
		}
	}

	for _, g := range securityGates {
		rules[gatesField+"."+g.name] = true
	}

	return Protection{rules: rules, limits: limits}
}

// ParseProtection parses --protected-fields: "" protects nothing, "+a,-b"
// changes the default list, "a,b" replaces it. An entry is a path of JSON names
// joined by dots and covers everything below it; the case of known names does
// not matter. The error names the invalid entry.
func ParseProtection(value string) (Protection, error) {
	if value == "" {
		return Protection{}, nil
	}

	lists := map[byte][]string{} // by sign: '+', '-', or 0 for no sign
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		sign, path := byte(0), entry
		if strings.HasPrefix(entry, "+") || strings.HasPrefix(entry, "-") {
			sign, path = entry[0], entry[1:]
		}

		if path == "" {
			return Protection{}, fmt.Errorf("an entry of %s is empty; to protect nothing, leave the whole list empty",
				quote(value))
		}

		path, err := resolveEntry(path)
		// A field of a newer kubelet is protected anyway, so adding it is an
		// error and removing it is not.
		if err != nil && (sign != '-' || !errors.Is(err, errNotKnown)) {
			return Protection{}, err
		}

		lists[sign] = append(lists[sign], path)
	}

	listed, added, removed := lists[0], lists['+'], lists['-']
	if len(listed) > 0 {
		if len(added)+len(removed) > 0 {
			return Protection{}, fmt.Errorf("%s has no sign, but others have one: "+
				"either all entries change the default list (+a,-b) or all replace it (a,b)", listed[0])
		}

		return Protection{}.with(listed, nil), nil
	}

	for _, path := range added {
		if slices.Contains(removed, path) {
			return Protection{}, fmt.Errorf("%s is both added and removed", path)
		}
	}

	return DefaultProtection().with(added, removed), nil
}

// with returns p with paths added and removed, which replace the rules below
// them.
func (p Protection) with(added, removed []string) Protection {
	rules, limits := map[string]bool{}, maps.Clone(p.limits)
	maps.Copy(rules, p.rules)
	for _, path := range slices.Concat(added, removed) {
		maps.DeleteFunc(rules, func(rule string, _ bool) bool { return covers(path, rule) })
		maps.DeleteFunc(limits, func(limited string, _ *Limit) bool { return covers(path, limited) })
	}

	for _, path := range added {
		rules[path] = true
	}

	for _, path := range removed {
		rules[path] = false
	}

	return Protection{rules: rules, limits: limits}
}

// errNotKnown marks an entry that resembles no known field.
var errNotKnown = errors.New("fields that this agent does not know are always protected")

// resolveEntry returns the path of an entry with the case of the known names.
// For an unknown field it returns the path unchanged and an error with a
// suggestion, or errNotKnown if a newer kubelet may have the field.
func resolveEntry(path string) (string, error) {
	at, rest := names, path
	for rest != "" && at.inner != nil {
		part, after, _ := strings.Cut(rest, ".")
		_, next := at.find(part)
		if next == nil {
			return path, unknownEntry(path)
		}

		at, rest = next, after
	}

	switch {
	case strings.HasSuffix(path, "."):
		return path, unknownEntry(path)
	case rest == "":
		return at.path, nil
	case at.path == gatesField:
		for _, g := range securityGates {
			if strings.EqualFold(g.name, rest) {
				rest = g.name
			}
		}

		return at.path + "." + rest, nil
	default:
		return path, fmt.Errorf("%s has no named fields: use %s itself", at.path, at.path)
	}
}

func unknownEntry(path string) error {
	if best := Nearest(path, namedPaths()); best != "" {
		return fmt.Errorf("unknown field %s: did you mean %s?", quote(path), best)
	}

	return fmt.Errorf("unknown field %s; %w", quote(path), errNotKnown)
}

// namedPaths are all possible paths of an entry, except for feature gates.
func namedPaths() []string {
	var paths []string
	for _, f := range Fields {
		for i, c := range f.Path + "." {
			if c == '.' && !slices.Contains(paths, f.Path[:i]) {
				paths = append(paths, f.Path[:i])
			}
		}
	}

	return paths
}

// Nearest returns the known name that is most similar to a name; empty if none
// is similar.
func Nearest(name string, known []string) string {
	best, least := "", 1+min(len(name)/3, max(2, len(name)/6))
	for _, candidate := range known {
		if d := EditDistance(strings.ToLower(name), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}

	return best
}

// EditDistance returns the number of bytes to insert, delete or replace to turn
// a into b.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}

			diagonal, row[j+1] = row[j+1], cost
		}
	}

	return row[len(b)]
}

// Empty reports whether nothing is protected, so that no comparison is needed.
func (p Protection) Empty() bool { return len(p.rules) == 0 }

// protects reports whether a difference at path counts. It also does if a field
// below path is protected: if one side is not a mapping, the differences below
// are unknown.
func (p Protection) protects(path string) bool {
	protected, longest := !p.Empty() && lookupField(path) == nil, -1
	for rule, on := range p.rules {
		if covers(rule, path) && len(rule) > longest {
			protected, longest = on, len(rule)
		}
		if on && covers(path, rule) {
			return true
		}
	}

	return protected
}

// covers reports whether path equals rule or is below it. Case is ignored,
// because fields that are not in Fields keep the name that the kubelet prints,
// which may differ from the API's.
func covers(rule, path string) bool {
	return len(path) >= len(rule) && strings.EqualFold(path[:len(rule)], rule) &&
		(len(path) == len(rule) || path[len(rule)] == '.' || path[len(rule)] == '[')
}

// lookupField returns the field at path, or the mapping with free keys that
// contains it; nil if it is not in Fields.
func lookupField(path string) *name {
	at := names
	for path != "" && at.inner != nil {
		part := path
		if end := strings.IndexAny(path, ".["); end >= 0 {
			part, path = path[:end], path[end+1:]
		} else {
			path = ""
		}

		if at = at.inner[part]; at == nil {
			return nil
		}
	}

	return at
}

// Violations returns the protected fields that differ from the local
// configuration, sorted by path. Both configurations were printed by the same
// kubelet and have the API's names (see Canonical). hidden are paths with
// masked values that differ, or may differ, from the local configuration.
// Mappings are compared leaf by leaf, lists as a whole. Null, an empty list and
// an empty mapping equal an unset field, but an empty struct does not:
// "tracing: {}" enables tracing. Values that the limit of a field allows are no
// violations.
func (p Protection) Violations(effective, local map[string]any, hidden []string) []Difference {
	found := map[string]Difference{}
	compare("", effective, local, func(path string, value, local any) {
		limit := p.limits[path]
		if !p.protects(path) || limit != nil && limit.Allows(value, local) {
			return
		}

		d := newDifference(path, value, local)
		if limit != nil {
			d.Limit = limit.Description
		}

		found[path] = d
	})
	for _, path := range hidden {
		if _, seen := found[path]; !seen && p.protects(path) {
			found[path] = Difference{Field: shownPath(path), Value: masked, Local: masked}
		}
	}

	paths := slices.Sorted(maps.Keys(found))
	var violations []Difference
	for _, path := range paths {
		// A hidden field is redundant if there are differences below it.
		if d := found[path]; d.Value != masked || d.Local != masked || !anyBelow(path, paths) {
			violations = append(violations, d)
		}
	}

	return violations
}

// anyBelow reports whether the sorted list all has a path below path.
func anyBelow(path string, all []string) bool {
	for _, start := range []string{path + ".", path + "["} {
		if i, _ := slices.BinarySearch(all, start); i < len(all) && strings.HasPrefix(all[i], start) {
			return true
		}
	}

	return false
}

// SetBy returns the protected fields that a configuration sets, sorted by path.
// A node refuses those whose values differ from its local configuration. Values
// that the limit of a field always allows are not returned, and fields that are
// not in Fields neither.
func (p Protection) SetBy(fields map[string]any) []Difference {
	known := map[string]any{}
	for key, value := range fields {
		if name, field := names.find(key); field != nil {
			known[name] = field.canonicalValue(value)
		}
	}

	return slices.DeleteFunc(p.Violations(known, nil, nil), func(d Difference) bool { return lookupField(d.Field) == nil })
}
