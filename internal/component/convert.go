// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// FlagConversion says how a kubelet's command line can do with fewer flags.
type FlagConversion struct {
	Flags []ConvertedFlag // all flags, in the order of the command line
	// Dropin is a partial configuration with the meaning of the removed flags;
	// nil if no field is needed.
	Dropin []byte
	// Remaining is the command line without the removed flags.
	Remaining []string
	// Differences are the fields whose effective values change if the drop-in
	// replaces the removed flags: Value is the new one, Local the present one.
	// There are none if the conversion is equivalent.
	Differences []payload.Difference
}

// ConvertedFlag is one flag of a command line, also if it is repeated there.
type ConvertedFlag struct {
	Name   string
	Args   []string // its arguments on the command line
	Fields []string // the fields that it sets, as JSON paths, sorted
	// Removed reports whether the flag can be removed. Without Fields it
	// changes nothing.
	Removed bool
	// Kept is why a flag that sets fields is not removed.
	Kept string
}

// headerFlag sets headerField, whose values the kubelet does not print.
const headerFlag = "manifest-url-header"

// ConvertFlags asks the kubelet which of its flags have an equivalent field of
// the configuration. It has no table of flags: the fields of a flag are those
// that the kubelet prints with another value without the flag. Finally it
// compares the effective configuration of the remaining command line and the
// drop-in with the present one. Only the value of -v is known from the command
// line, because each dry run has its own.
//
// The local configuration is that of CheckLocal. The kubelet is not started and
// nothing is changed. An error means that the kubelet could not be asked, or
// that it does not accept its command line.
func (h *DryRunner) ConvertFlags(ctx context.Context, initFile string) (FlagConversion, error) {
	var none FlagConversion
	caps, err := h.probe(ctx)
	if err != nil {
		return none, err
	}
	if caps.shape == nil {
		return none, errors.New("this kubelet does not print its configuration in a known form")
	}

	c := &conversion{h: h, shape: caps.shape, initFile: initFile}
	c.present = c.local(ctx, h.k.flags)
	if err := c.present.printed(); err != nil {
		return none, fmt.Errorf("the present command line: %w", err)
	}

	c.bare = sync.OnceValue(func() result { return c.local(ctx, nil) })

	converted := FlagConversion{Flags: h.k.distinctFlags()}
	var wait sync.WaitGroup
	found := make([][]foundField, len(converted.Flags))
	for i := range converted.Flags {
		if f := &converted.Flags[i]; f.Name == "v" || !slices.Contains(droppedAlways, f.Name) {
			wait.Go(func() { found[i] = c.ask(ctx, f) })
		}
	}

	wait.Wait()
	kept := slices.Clone(h.k.flags)
	fields := map[string]any{}
	for i, f := range converted.Flags {
		if !f.Removed {
			continue
		}

		kept = slices.DeleteFunc(kept, f.is)
		for _, field := range found[i] {
			c.addField(fields, field)
		}
	}

	remaining := h.k.withFlags(kept)
	converted.Remaining = append([]string{h.k.Path}, remaining.Args...)
	config := h.k.local(initFile)
	if len(fields) > 0 {
		fields["apiVersion"], fields["kind"] = payload.UpstreamAPIVersion, payload.KubeletKind
		if converted.Dropin, err = Effective(fields).YAML(); err != nil {
			return none, err
		}
		if config, err = remaining.candidate(Candidate{Data: converted.Dropin, Dropin: true}, initFile); err != nil {
			return none, err
		}
	}

	a := h.of(remaining).run(ctx, dryRun{stage: 1, config: config, withFlags: true, shape: caps.shape})
	if err := a.printed(); err != nil {
		return none, fmt.Errorf("the drop-in instead of the flags: %w", err)
	}

	converted.Differences = payload.Diff(a.effective, c.present.effective)

	return converted, nil
}

// printed returns an error unless a dry run was accepted and printed its
// effective configuration.
func (a result) printed() error {
	switch {
	case a.outcome != Accepted:
		return errors.New(a.message)
	case a.effective == nil:
		return errors.New("the kubelet did not print its configuration")
	}

	return nil
}

// conversion is the state of one call of ConvertFlags.
type conversion struct {
	h        *DryRunner
	shape    *dumpShape
	initFile string
	present  result        // of the whole command line
	bare     func() result // of the command line without flags; run once
}

// local runs the local configuration with other flags.
func (c *conversion) local(ctx context.Context, flags []flag) result {
	k := c.h.k.withFlags(flags)
	return c.h.of(k).run(ctx, dryRun{stage: 1, config: k.local(c.initFile), withFlags: true, shape: c.shape})
}

// foundField is a field that a flag sets.
type foundField struct {
	path []segment
	list bool
}

// ask finds the fields of a flag: those that change without the flag. If the
// kubelet refuses the rest of the command line alone, those that change if the
// flag is the only one. If it refuses that too, the field that has the flag's
// name.
func (c *conversion) ask(ctx context.Context, f *ConvertedFlag) []foundField {
	if f.Name == headerFlag {
		f.Fields, f.Kept = []string{headerField}, "the kubelet does not print the values of this field"
		return nil
	}

	without := c.local(ctx, slices.DeleteFunc(slices.Clone(c.h.k.flags), f.is))
	var fields []foundField
	if without.printed() == nil {
		fields = differing(c.present.effective, without.effective)
		f.Removed = len(fields) > 0 || slices.Contains(c.present.fileFlags, f.Name)
	} else {
		fields = c.alone(ctx, f)
		if f.Removed = len(fields) > 0; !f.Removed {
			f.Kept = "without it, the kubelet does not accept its command line: " + without.message
		}
	}

	for _, field := range fields {
		f.Fields = append(f.Fields, joinPath(field.path))
	}

	slices.Sort(f.Fields)

	return fields
}

// alone finds the fields of a flag without the other flags.
func (c *conversion) alone(ctx context.Context, f *ConvertedFlag) []foundField {
	others := func(other flag) bool { return !f.is(other) }
	alone, bare := c.local(ctx, slices.DeleteFunc(slices.Clone(c.h.k.flags), others)), c.bare()
	if alone.printed() == nil && bare.printed() == nil {
		return differing(alone.effective, bare.effective)
	}

	for name := range c.present.effective {
		if strings.EqualFold(name, strings.ReplaceAll(f.Name, "-", "")) {
			return []foundField{{path: []segment{{name: name}}}}
		}
	}

	return nil
}

// addField adds the present value of a field to a drop-in. If it has none at
// present, the drop-in unsets it.
func (c *conversion) addField(dropin map[string]any, field foundField) {
	value, _ := c.present.effective.field(field.path)
	if value == nil && field.list {
		value = []any{}
	}

	last := len(field.path) - 1
	for _, s := range field.path[:last] {
		inner, ok := dropin[s.name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			dropin[s.name] = inner
		}

		dropin = inner
	}

	name := field.path[last].name
	if inner, ok := value.(map[string]any); ok && len(inner) == 0 {
		if _, filled := dropin[name].(map[string]any); filled {
			return // with keys to remove
		}

		value = map[string]any{}
	}

	dropin[name] = value
}

// differing returns the fields that are set in a or b and have different
// values.
func differing(a, b Effective) []foundField {
	var found []foundField
	leaves(a, nil, func(path []segment, value any) {
		if other, _ := b.field(path); !reflect.DeepEqual(value, other) {
			_, list := value.([]any)
			found = append(found, foundField{path, list})
		}
	})
	leaves(b, nil, func(path []segment, value any) {
		if in, _ := a.field(path); in == nil {
			_, list := value.([]any)
			found = append(found, foundField{path, list})
		}
	})

	return found
}

// is reports whether an argument is this flag.
func (f ConvertedFlag) is(other flag) bool { return other.name == f.Name }

// distinctFlags returns the flags of a command line, each once.
func (k *Kubelet) distinctFlags() []ConvertedFlag {
	var flags []ConvertedFlag
	for _, f := range k.flags {
		if !slices.ContainsFunc(flags, func(g ConvertedFlag) bool { return g.is(f) }) {
			flags = append(flags, ConvertedFlag{Name: f.name, Args: only(k.flags, f.name)})
		}
	}

	return flags
}

// withFlags returns the kubelet with these flags on its command line. The
// fields of Kubelet other than Args stay as they are.
func (k *Kubelet) withFlags(flags []flag) *Kubelet {
	other := *k
	other.flags, other.Args = flags, without(flags)
	return &other
}

// of returns a DryRunner for the same binary with another command line. It
// shares the limit of parallel runs.
func (h *DryRunner) of(k *Kubelet) *DryRunner {
	return &DryRunner{Deadline: h.Deadline, Protected: h.Protected, k: k, apiVersions: h.apiVersions, scratch: h.scratch, log: h.log,
		slots: h.slots}
}

// UnknownFlags returns the names of the flags of this command line that another
// kubelet does not have, such as that of a planned upgrade. The error says why
// that kubelet could not be asked, or that it refuses the value of a flag.
func (k *Kubelet) UnknownFlags(ctx context.Context, path string) (version string, unknown []string, err error) {
	other := program{"kubelet", path}
	if version, err = queryVersion(ctx, "kubelet", other); err != nil {
		return "", nil, err
	}

	for _, f := range k.distinctFlags() {
		switch _, err := queryVersion(ctx, "kubelet", other, f.Args...); {
		case err == nil:
		case strings.Contains(err.Error(), `unknown flag: --`+f.Name):
			unknown = append(unknown, f.Name)
		default:
			return version, nil, err
		}
	}

	return version, unknown, nil
}
