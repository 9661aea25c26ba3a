package payload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// gate is one feature gate that a payload may not change by default, and why.
type gate struct{ name, why string }

const gatesField = "featureGates"

// securityGates are the gates that a kubelet from 1.32 to 1.37 acts on and that open, show or stop checking something.
// Gates that only the API server or the scheduler acts on are not among them, nor those that open a field which is
// protected itself (DefaultPodSysctls). Sorted by name.
var securityGates = []gate{
	{"AllAlpha", "switches all alpha gates, those of this list too"},
	{"AllBeta", "switches all beta gates, those of this list too"},
	{"AllowDNSOnlyNodeCSR", "asks for a serving certificate that names no IP address"},
	{"AllowParsingUserUIDFromCertAuth", "what is read from a client certificate"},
	{"CSIServiceAccountTokenSecrets", "off: pods' tokens go to CSI drivers where their logs show them"},
	{"ClientsAllowCARotation", "off: the kubelet goes on trusting a CA that was replaced"},
	{"ComponentFlagz", "shows the kubelet's command line on its API"},
	{"ComponentStatusz", "shows the kubelet's build and paths on its API"},
	{"ContainerCheckpoint", "writes a container's memory to the node's disk on request"},
	{"EmptyDirVolumeMode", "off: every user in a pod can write an emptyDir for which the pod asks a stricter mode"},
	{"GitRepoVolumeDriver", "runs git as root on a repository that a pod names"},
	{"KubeletAllocatedPodsEndpoint", "shows all pods on the kubelet's API"},
	{"KubeletEnsureSecretPulledImages", "off: pods may use images that they could not pull"},
	{"KubeletFineGrainedAuthz", "off: to read anything takes the right to everything"},
	{"KubeletInUserNamespace", "goes on when kernel settings and limits cannot be made"},
	{"KubeletServiceAccountTokenForCredentialProviders", "whose credentials pull an image"},
	{"KubeletTracing", "sends traces away"},
	{"NodeLogQuery", "shows the logs of the node's services"},
	{"PodsAPI", "shows all pods on a socket"},
	{"PreventStaticPodAPIReferences", "off: static pods may name Secrets and other objects"},
	{"ProcMountType", "lets pods unmask /proc"},
	{"RecursiveReadOnlyMounts", "off: what is mounted below a read-only mount can be written"},
	{"ReloadKubeletClientCAFile", "off: client certificates of a replaced CA stay good"},
	{"ReloadKubeletServerCertificateFile", "off: a replaced serving certificate stays in use"},
	{"RotateKubeletServerCertificate", "off: the serving certificate is not renewed"},
	{"SupplementalGroupsPolicy", "off: pods get groups of the image that they refuse"},
	{"UserNamespacesSupport", "off: pods lose their user namespace"},
}

// Protection says which fields a payload may not make different from the node's local configuration. The zero
// Protection protects nothing.
type Protection struct {
	// rules are paths that are protected with all below them (true), or taken out (false). The longest that covers a
	// field decides. If there are any, a field that Fields does not have is protected too.
	rules map[string]bool
	// limits are of paths in rules: up to there a field is free nevertheless. Who names a field protects all its values.
	limits map[string]*Limit
}

// DefaultProtection returns the protection of the column Protected of Fields, and of the security feature gates.
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

// ParseProtection reads --protected-fields: "" protects nothing, "+a,-b" changes the default list, "a,b" replaces it.
// An entry is a path of JSON names with dots between, and stands for all below it; the case of known names does not
// matter. The error says in plain words which entry is wrong.
func ParseProtection(value string) (Protection, error) {
	if value == "" {
		return Protection{}, nil
	}
	lists := map[byte][]string{} // by sign: '+', '-', or 0 for none
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
		// A field that only a newer kubelet has is protected without being named, but must be named to be freed.
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

// with returns p with these paths, instead of what p says about fields below them.
func (p Protection) with(added, removed []string) Protection {
	rules, limits := maps.Clone(p.rules), maps.Clone(p.limits)
	if rules == nil {
		rules = map[string]bool{}
	}
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

// errNotKnown is of an entry that resembles no field that this agent knows.
var errNotKnown = errors.New("a field that this agent does not know is protected anyway")

// resolveEntry returns the path of --protected-fields in the case of the names it means. If there is no such field, it
// returns the path as it is, and an error that says which one may be meant; errNotKnown if it may be a newer kubelet's.
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
		return path, fmt.Errorf("%s has no fields below it that could be named: name %s itself", at.path, at.path)
	}
}

func unknownEntry(path string) error {
	var best string
	least := 1 + max(2, len(path)/6)
	for _, candidate := range namedPaths() {
		if d := editDistance(strings.ToLower(path), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	if best != "" {
		return fmt.Errorf("no field is named %s: is %s meant?", quote(path), best)
	}
	return fmt.Errorf("no field is named %s; %w", quote(path), errNotKnown)
}

// namedPaths are all paths that an entry can be, but for feature gates.
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

// editDistance counts the bytes to insert, delete or replace to make b of a.
func editDistance(a, b string) int {
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

// Empty tells whether nothing is protected, so that no dump is needed.
func (p Protection) Empty() bool { return len(p.rules) == 0 }

// protects tells whether a difference at path matters. It does as well if something below path is protected: where
// there is no mapping, nobody can tell what of it differs.
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

// covers tells whether path is rule or below it. Case does not matter: what Fields does not have keeps the name that
// the kubelet prints, and nobody knows the API's.
func covers(rule, path string) bool {
	return len(path) >= len(rule) && strings.EqualFold(path[:len(rule)], rule) &&
		(len(path) == len(rule) || path[len(rule)] == '.' || path[len(rule)] == '[')
}

// lookupField returns the field at path, or the one with free keys that path leads into; nil if Fields has none.
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

// Violations returns the protected fields that are not effective as they are locally, by path. Both configurations are
// as the same kubelet printed them, with the API's names (Canonical). hidden are paths whose values the kubelet masks
// and that are not, or not known to be, as they are locally. A mapping is compared leaf by leaf, a list as a whole.
// Null, an empty list and an empty mapping are the same as nothing; an empty struct is not: "tracing: {}" is tracing.
// A difference that the limit of its field allows is no violation.
func (p Protection) Violations(effective, local map[string]any, hidden []string) []Difference {
	found := map[string]Difference{}
	compare("", effective, local, func(path string, value, local any) {
		if p.protects(path) && !p.allows(path, value, local) {
			found[path] = p.violation(path, value, local)
		}
	})
	for _, path := range hidden {
		if _, seen := found[path]; !seen && p.protects(path) {
			found[path] = Difference{Field: shownPath(path), Value: masked, Local: masked}
		}
	}
	paths := slices.Sorted(maps.Keys(found))
	var violations []Difference
	for _, path := range paths {
		// A field that is hidden as a whole says no more than what is found below it.
		if d := found[path]; d.Value != masked || d.Local != masked || !anyBelow(path, paths) {
			violations = append(violations, d)
		}
	}
	return violations
}

// allows reports whether a protected field may have a value because its limit allows it.
func (p Protection) allows(path string, value, local any) bool {
	limit := p.limits[path]
	return limit != nil && limit.Allows(value, local)
}

func (p Protection) violation(path string, value, local any) Difference {
	d := newDifference(path, value, local)
	if limit := p.limits[path]; limit != nil {
		d.Limit = limit.Words
	}
	return d
}

// anyBelow tells whether there is a path below this one; all are sorted.
func anyBelow(path string, all []string) bool {
	for _, start := range []string{path + ".", path + "["} {
		if i, _ := slices.BinarySearch(all, start); i < len(all) && strings.HasPrefix(all[i], start) {
			return true
		}
	}
	return false
}
