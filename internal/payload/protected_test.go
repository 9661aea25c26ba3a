// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func parse(t *testing.T, value string) Protection {
	t.Helper()
	return assert.Value(ParseProtection(value))(t)
}

// listed returns the protected paths, including everything below them, sorted.
func listed(p Protection) []string {
	rules := maps.Clone(p.rules)
	maps.DeleteFunc(rules, func(_ string, protected bool) bool { return !protected })

	return slices.Sorted(maps.Keys(rules))
}

func expect(t *testing.T, p Protection, effective, local map[string]any, hidden []string, want ...string) {
	t.Helper()
	var said []string
	for _, v := range p.Violations(effective, local, hidden) {
		said = append(said, v.String())
	}

	assert.NoDiff(t, cmp.Diff(want, said))
}

type object = map[string]any

func TestDefaultProtectionProtectsExactlyTheListedFields(t *testing.T) {
	p := DefaultProtection()
	for _, f := range Fields {
		effective, local := at(f.Path, "a"), at(f.Path, "b")
		want := 0
		// Feature gates are protected one by one; a value that is not a mapping
		// hides all of them.
		if f.Protected != "" || f.Path == gatesField {
			want = 1
		}

		got := p.Violations(effective, local, nil)
		assert.That(t, len(got) == want, "%s: %v", f.Path, got)
	}
}

// at returns a configuration with one value.
func at(path string, value any) object {
	all := object{}
	plant(all, path, value)

	return all
}

// readSections returns two parts of the page on protected fields: the table of
// free fields, and the rest.
func readSections(t *testing.T) (free, rest string) {
	t.Helper()
	doc := assert.Value(os.ReadFile(filepath.Join("..", "..", "docs", "protected-fields.md")))(t)
	before, after, ok := strings.Cut(string(doc), "\n## What stays free, and why\n")
	free, after, more := strings.Cut(after, "\n## ")
	assert.Must(t, ok && more, "docs/protected-fields.md does not say what stays free, or says nothing after it")

	return free, before + after
}

func TestTheDocsHaveAReasonForEveryFreeField(t *testing.T) {
	free, _ := readSections(t)
	said := map[string]bool{}
	for line := range strings.Lines(free) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| `") {
			continue
		}

		assert.That(t, len(cells) == 2 && len(cells[1]) >= 10, "the row %q says no reason", line)
		for i, name := range strings.Split(cells[0], "`") {
			if i%2 == 0 {
				continue
			}

			assert.That(t, !said[name], "%s is there twice", name)
			said[name] = true
		}
	}

	for _, f := range Fields {
		want := f.Protected == "" && f.Path != gatesField
		assert.That(t, said[f.Path] == want, "%s: it is said to be free: %v, want %v", f.Path, said[f.Path], want)

		delete(said, f.Path)
	}

	assert.That(t, len(said) == 0, "these are no fields: %v", said)
}

func TestTheDocsListTheProtectedFieldsWithReasons(t *testing.T) {
	_, doc := readSections(t)
	var want strings.Builder
	for _, f := range Fields {
		if f.Protected != "" {
			limit := ""
			if f.Limit != nil {
				limit = " (" + f.Limit.Description + ")"
			}

			fmt.Fprintf(&want, "| `%s` | %s%s |\n", f.Path, f.Protected, limit)
		}
	}

	for _, g := range securityGates {
		fmt.Fprintf(&want, "| `%s.%s` | %s |\n", gatesField, g.name, g.why)
	}

	var got strings.Builder
	for line := range strings.Lines(doc) {
		if path, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); ok && strings.HasPrefix(line, "| `") {
			if _, err := resolveEntry(path); err == nil {
				got.WriteString(line)
			}
		}
	}

	assert.NoDiff(t, cmp.Diff(want.String(), got.String()), "docs/protected-fields.md")
}

func TestAViolationShowsBothValues(t *testing.T) {
	p := DefaultProtection()
	for _, tt := range []struct {
		name             string
		effective, local object
		want             []string
	}{
		{"a leaf of a struct", at("authentication.anonymous.enabled", true), at("authentication.anonymous.enabled", false),
			[]string{"authentication.anonymous.enabled would be true, but is false locally"}},
		{"false is not absent", at("seccompDefault", false), object{},
			[]string{"seccompDefault would be false, but is unset locally"}},
		{"a list in another order", at("tlsCurvePreferences", []any{1, 2}), at("tlsCurvePreferences", []any{2, 1}),
			[]string{"tlsCurvePreferences would be [1,2], but is [2,1] locally"}},
		{"a gate", object{"featureGates": object{"AllAlpha": true, "QOSReserved": true}}, object{"featureGates": object{}},
			[]string{"featureGates.AllAlpha would be true, but is unset locally"}},
		{"several, by path", object{"port": 1, "address": "::", "maxPods": 5}, object{"port": 2, "address": "::1", "maxPods": 6},
			[]string{`address would be "::", but is "::1" locally`, "port would be 1, but is 2 locally"}},
		{"integers that no float tells apart", object{"port": json.Number("9007199254740993")}, object{"port": json.Number("9007199254740992")},
			[]string{"port would be 9007199254740993, but is 9007199254740992 locally"}},
		{"an unknown field", object{"NewDoor": object{"Open": true}}, object{"NewDoor": object{"Open": false}},
			[]string{"NewDoor.Open would be true, but is false locally"}},
		{"an unknown field in a known struct that is free", at("logging.newSink", "/x"), at("logging.newSink", nil),
			[]string{`logging.newSink would be "/x", but is unset locally`}},
		{"a name in another case is no name that is known", object{"MaxPods": 1}, object{},
			[]string{"MaxPods would be 1, but is unset locally"}},
		{"tracing without anything set is tracing", object{"tracing": object{}}, object{"tracing": nil},
			[]string{"tracing would be {}, but is unset locally"}},
		{"a string where a struct was", object{"authentication": "x"}, at("authentication.anonymous.enabled", false),
			[]string{`authentication would be "x", but is {"anonymous":{"enabled":false}} locally`}},
		{"a list where the gates were", object{"featureGates": []any{"AllAlpha"}}, object{},
			[]string{`featureGates would be ["AllAlpha"], but is unset locally`}},
		{"markup stays as it is", at("staticPodPath", "<a&b>"), at("staticPodPath", ""),
			[]string{`staticPodPath would be "<a&b>", but is "" locally`}},
		{"a key with a dot", object{"x": object{"a.b": 1, "": 2}}, nil,
			[]string{"x[] would be 2, but is unset locally", "x[a.b] would be 1, but is unset locally"}},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, p, tt.effective, tt.local, nil, tt.want...) })
	}
}

func TestEquivalentValuesAreNoViolation(t *testing.T) {
	p := DefaultProtection()
	for _, tt := range []struct {
		name             string
		effective, local object
	}{
		{"both absent", object{}, nil},
		{"null and absent", object{"staticPodPath": nil}, object{}},
		{"an empty list, null and absent", object{"tlsCipherSuites": []any{}, "allowedUnsafeSysctls": nil}, object{"allowedUnsafeSysctls": []any{}}},
		{"an empty mapping and null", object{"featureGates": object{}, "staticPodURLHeader": nil}, object{"featureGates": nil, "staticPodURLHeader": object{}}},
		{"a header without values", object{"staticPodURLHeader": object{"A": []any{}}}, object{}},
		{"numbers of several Go types", object{"port": json.Number("10250"), "readOnlyPort": 0.0, "New": []any{int64(1), json.Number("0.5"), 7}},
			object{"port": int64(10250), "readOnlyPort": json.Number("0"), "New": []any{1.0, 0.5, json.Number("7e0")}}},
		{"an equal list of structs", object{"New": []any{object{"a": 1, "b": nil}}}, object{"New": []any{object{"a": 1.0}}}},
		{"free fields", object{"maxPods": 5, "evictionHard": object{"memory.available": "1Gi"}, "logging": object{"format": "json"}},
			object{"maxPods": 6, "shutdownGracePeriodByPodPriority": []any{object{"priority": 1}}}},
		{"free gates, also one that is unknown", object{"featureGates": object{"QOSReserved": true, "Brandnew": true}}, object{}},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, p, tt.effective, tt.local, nil) })
	}
}

func TestAKeyIsNotReadAsAnUnprotectedPath(t *testing.T) {
	p := parse(t, "-authentication.anonymous,-featureGates")
	effective := object{
		"maxPods.x":      1,
		"authentication": object{"anonymous.enabled": true, "anonymous[": 1, "anonymous]": 1, ".anonymous": 1},
		"featureGates.":  1, "featureGates[A": 1, "": 1,
	}
	want := []string{"[]", "[featureGates.]", "[featureGates[A]", "[maxPods.x]",
		"authentication[.anonymous]", "authentication[anonymous.enabled]", "authentication[anonymous[]", "authentication[anonymous]]"}
	var got []string
	for _, v := range p.Violations(effective, object{"authentication": object{}}, nil) {
		got = append(got, v.Field)
	}

	assert.NoDiff(t, cmp.Diff(want, got))
}

func TestMaskedValuesThatMayDifferAreViolations(t *testing.T) {
	header := object{"staticPodURLHeader": object{"X.Y": []any{"<masked>"}}}
	p := DefaultProtection()
	expect(t, p, header, header, nil)
	for _, hidden := range []string{"staticPodURLHeader", "staticPodURLHeader[X.Y]", "staticPodURLHeader.X"} {
		expect(t, p, header, header, []string{hidden}, hidden+" is masked and differs, or may differ, from the local configuration")
		expect(t, parse(t, "-staticPodURLHeader"), header, header, []string{hidden})
		expect(t, parse(t, "maxPods"), header, header, []string{hidden})
	}

	expect(t, p, header, header, []string{"maxPods", "authentication"}, "authentication is masked and differs, or may differ, from the local configuration")
	expect(t, p, header, object{}, []string{"staticPodURLHeader"}, "staticPodURLHeader[X.Y] would be masked, but is unset locally")
}

func TestManyMaskedValuesAreAllFound(t *testing.T) {
	const many = 20_000
	effective, local, hidden := object{}, object{}, []string{"staticPodURLHeader"}
	for i := range many {
		name := fmt.Sprintf("X-%d", i)
		if effective[name] = []any{"<masked>"}; i%2 == 0 {
			local[name] = []any{"<masked>"}
		}

		hidden = append(hidden, "staticPodURLHeader."+name)
	}

	got := DefaultProtection().Violations(object{"staticPodURLHeader": effective}, object{"staticPodURLHeader": local}, hidden)
	unset := 0
	for _, v := range got {
		if v.Local == "unset" {
			unset++
		}
	}

	assert.That(t, len(got) == many && unset == many/2, "%d violations, %d of them of headers that are not there locally", len(got), unset)
}

func TestCredentialsOfTheStaticPodSourceAreNeverShown(t *testing.T) {
	const hidden = "staticPodURL is masked and differs, or may differ, from the local configuration"
	for _, tt := range []struct {
		effective, local any
		want             string
	}{
		{"http://me:secret@host/", "http://host/?token=secret", hidden},
		{"http://host/token-1", "http://host/token-2", hidden},
		{[]any{"secret"}, object{"x": "secret"}, hidden},
		{"http://host/", "http://me@host/", `staticPodURL would be "http://host/", but is "http://host/masked" locally`},
		{"http://a/secret", "http://b/secret", `staticPodURL would be "http://a/masked", but is "http://b/masked" locally`},
		{"secret", nil, "staticPodURL would be masked, but is unset locally"},
	} {
		expect(t, DefaultProtection(), at("staticPodURL", tt.effective), at("staticPodURL", tt.local), nil, tt.want)
	}

	expect(t, DefaultProtection(), at("staticPodURLHeader.A", []any{"secret"}), at("staticPodURLHeader.A", []any{"other"}), nil,
		"staticPodURLHeader.A is masked and differs, or may differ, from the local configuration")
}

func TestAViolationIsShortAndPrintable(t *testing.T) {
	long := strings.Repeat("long ", 1e5)
	violations := DefaultProtection().Violations(
		object{"staticPodPath": long, "New\n\x1b[31m": math.Inf(1), "New" + long: true}, object{"staticPodPath": []any{long}}, nil)
	assert.Must(t, len(violations) == 3, "%d violations", len(violations))
	for _, v := range violations {
		words := v.String()
		assert.That(t, len(words) <= 1000 && !strings.ContainsAny(words, "\n\x1b"), "%d bytes: %q", len(words), words)
	}

	assert.Equal(t, violations[1], Difference{Field: `[New\n\x1b[31m]`, Value: `"+Inf"`, Local: "unset"})
}

func TestProtectedFieldsCanBeAddedRemovedReplacedOrEmptied(t *testing.T) {
	for _, tt := range []struct {
		value           string
		protected, free []string
	}{
		{"+maxPods", []string{"maxPods", "port", "newField"}, []string{"podsPerCore"}},
		{" +MAXPODS , -Port ", []string{"maxPods", "address"}, []string{"port"}},
		{"+ResolverConfig,-clusterDNS", []string{"resolvConf", "clusterDomain"}, []string{"clusterDNS"}},
		{"-podPidsLimit,-logging", []string{"port"}, []string{"podPidsLimit", "logging.verbosity", "logging.vmodule"}},
		{"-authentication", []string{"authorization.mode"}, []string{"authentication.anonymous.enabled", "authentication.newWay"}},
		{"-authentication,+authentication.x509", []string{"authentication.x509.clientCAFile"}, []string{"authentication.webhook.enabled"}},
		{"+authentication,-authentication.webhook.cacheTTL", []string{"authentication.anonymous.enabled", "authentication.newWay"}, []string{"authentication.webhook.cacheTTL"}},
		{"+featureGates", []string{"featureGates.QOSReserved", "featureGates.AllBeta"}, []string{"maxPods"}},
		{"+featureGates,-featuregates.qosreserved,-featureGates.allbeta", []string{"featureGates.AllAlpha", "featureGates.Other"}, []string{"featureGates.QOSReserved", "featureGates.AllBeta"}},
		{"+featureGates.QOSReserved", []string{"featureGates.QOSReserved", "featureGates.AllBeta"}, []string{"featureGates.Other"}},
		{"-newField,-logging.newSink", []string{"otherField", "port"}, []string{"newField", "NewField", "newField.below", "logging.NewSink"}},
		{"+shutdownGracePeriodByPodPriority.priority", []string{"shutdownGracePeriodByPodPriority"}, nil},
		{"port,featureGates.AllAlpha", []string{"port", "featureGates.AllAlpha", "newField"}, []string{"address", "featureGates.AllBeta", "maxPods"}},
		{"", nil, []string{"port", "newField", "featureGates.AllAlpha"}},
	} {
		p := parse(t, tt.value)
		for _, path := range tt.protected {
			assert.That(t, len(p.Violations(at(path, []any{1}), at(path, []any{2}), nil)) == 1, "%s: %s is not protected", tt.value, path)
		}

		for _, path := range tt.free {
			got := p.Violations(at(path, []any{1}), at(path, []any{2}), []string{path})
			assert.That(t, got == nil, "%s: %s is protected: %v", tt.value, path, got)
		}

		assert.That(t, p.Empty() == (tt.value == ""), "%s: empty: %v", tt.value, p.Empty())
	}
}

func TestErrorsOfInvalidProtectedFieldsLists(t *testing.T) {
	const emptyEntry = `; to protect nothing, leave the whole list empty`
	for value, want := range map[string]string{
		" ":                                 `an entry of "" is empty` + emptyEntry,
		"+":                                 `an entry of "+" is empty` + emptyEntry,
		"+maxPods,port":                     `port has no sign, but others have one: either all entries change the default list (+a,-b) or all replace it (a,b)`,
		"+maxPods,-maxpods":                 `maxPods is both added and removed`,
		"-tlsMinVersoin":                    `unknown field "tlsMinVersoin": did you mean tlsMinVersion?`,
		"-cpuManagerPolicyOptions.x":        `cpuManagerPolicyOptions has no named fields: use cpuManagerPolicyOptions itself`,
		"authentification":                  `unknown field "authentification": did you mean authentication?`,
		"+authentication.anonimous.enabled": `unknown field "authentication.anonimous.enabled": did you mean authentication.anonymous.enabled?`,
		"+cloudProvider":                    `unknown field "cloudProvider"; fields that this agent does not know are always protected`,
		"authentication.":                   `unknown field "authentication.": did you mean authentication?`,
		"+evictionHard.memory.available":    `evictionHard has no named fields: use evictionHard itself`,
	} {
		assert.Error(t, assert.Err(ParseProtection(value)), want, value)
	}
}

func TestAListProtectsExactlyTheNamedPaths(t *testing.T) {
	assert.NoDiff(t, cmp.Diff([]string{"featureGates", "maxPods", "port"}, listed(parse(t, "port,MaxPods,featureGates,port"))))
	// Naming each path of the default list is equivalent to it, except for
	// limits.
	p := DefaultProtection()
	named := parse(t, strings.Join(listed(p), ","))
	assert.NoDiff(t, cmp.Diff(p.rules, named.rules))
	assert.That(t, len(named.limits) == 0 && len(p.limits) != 0, "limits are %v, by default %v", named.limits, p.limits)
}

// anyValue draws values of leaves, and unusual values.
func anyValue() *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.StringN(0, 4, -1).AsAny(), rapid.Int64Range(-3, 3).AsAny(),
		rapid.Map(rapid.IntRange(-3, 3), func(i int) any { return json.Number(fmt.Sprint(i)) }))
	return rapid.OneOf(leaf,
		rapid.SliceOfN(leaf, 0, 3).AsAny(),
		rapid.MapOfN(rapid.SampledFrom([]string{"a", "b.c", ""}), leaf, 0, 2).AsAny(),
	).Filter(func(v any) bool { return v != nil })
}

// anyConfiguration draws values for some fields, known or unknown.
func anyConfiguration() *rapid.Generator[object] {
	paths := []string{"newField", "authentication.new", "featureGates.AllAlpha", "featureGates.Other"}
	for _, f := range Fields {
		paths = append(paths, f.Path)
	}

	return rapid.Custom(func(t *rapid.T) object {
		all := object{}
		for _, path := range rapid.SliceOfN(rapid.SampledFrom(paths), 0, 12).Draw(t, "paths") {
			plant(all, path, anyValue().Draw(t, path))
		}

		return all
	})
}

// plant sets the value at path and replaces values on the way that are not
// mappings.
func plant(to object, path string, value any) {
	part, rest, below := strings.Cut(path, ".")
	if !below {
		to[part] = value
		return
	}

	inner, _ := to[part].(object)
	inner = maps.Clone(inner)
	if inner == nil {
		inner = object{}
	}

	plant(inner, rest, value)
	to[part] = inner
}

func TestAConfigurationNeverViolatesItself(t *testing.T) {
	everything := parse(t, "+"+strings.Join(namedPaths(), ",+"))
	rapid.Check(t, func(t *rapid.T) {
		c := anyConfiguration().Draw(t, "configuration")
		got := everything.Violations(c, c, nil)
		assert.Must(t, got == nil, "%v", got)
	})
}

func TestViolationsAreSymmetric(t *testing.T) {
	p := parse(t, strings.Join(listed(DefaultProtection()), ",")) // without limits, which are not symmetric
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyConfiguration().Draw(t, "a"), anyConfiguration().Draw(t, "b")
		there, back := p.Violations(a, b, nil), p.Violations(b, a, nil)
		for i := range back {
			back[i].Value, back[i].Local = back[i].Local, back[i].Value
		}

		assert.NoDiff(t, cmp.Diff(there, back))
	})
}

func TestEveryChangeOfAProtectedFieldIsFound(t *testing.T) {
	p := DefaultProtection()
	paths := append(listed(p), "newField", "authentication.new", "logging.new")
	rapid.Check(t, func(t *rapid.T) {
		local, path := anyConfiguration().Draw(t, "local"), rapid.SampledFrom(paths).Draw(t, "path")
		plant(local, path, rapid.SampledFrom([]any{nil, "old", false, json.Number("1")}).Draw(t, "old"))
		effective := maps.Clone(local)
		for _, other := range []string{"maxPods", "evictionHard.x", "featureGates.Other"} {
			plant(effective, other, "free")
		}

		plant(effective, path, rapid.SampledFrom([]any{"new", true, 20.0, []any{"x"}}).Draw(t, "new"))
		violations := p.Violations(effective, local, nil)
		assert.Must(t, slices.ContainsFunc(violations, func(v Difference) bool { return v.Field == path }), "%s: %v", path, violations)
	})
}

func TestSecurityGatesAreSortedAndHaveReasons(t *testing.T) {
	assert.That(t, slices.IsSortedFunc(securityGates, func(a, b gate) int { return strings.Compare(a.name, b.name) }), "they are not sorted")
	for _, g := range securityGates {
		assert.That(t, g.why != "", "%s has no reason", g.name)
	}
}
