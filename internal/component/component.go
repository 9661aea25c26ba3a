// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// Component is a node component whose binary validates configurations without a
// node: no flags and no local configuration, so the binary of any version can
// be used on any host. Problems caused by this host are reported in the verdict
// and never reject a configuration. It is safe for concurrent use.
//
// A DryRunner validates for the kubelet of a node, with its flags, and checks
// more.
type Component interface {
	// Name returns the component's name, one of Names.
	Name() string
	// Version runs the binary to read its version, such as "v1.36.3".
	Version(ctx context.Context) (string, error)
	// Validate lets the binary decode and validate a whole configuration.
	// Unknown fields and a second YAML document, which the binary would ignore
	// or only warn about, are rejections. A configuration is rejected only if
	// the binary accepts an empty configuration at the same time. Effective is
	// the configuration with its defaults, including apiVersion and kind, in
	// the API's names.
	Validate(ctx context.Context, data []byte) Verdict
	// PreferredVersion returns the apiVersion that the binary prefers for its
	// configuration, such as "kubelet.config.k8s.io/v1beta1". The error says
	// why the binary could not report it.
	PreferredVersion(ctx context.Context) (string, error)
}

// validator is the part of a validation that differs between components.
type validator interface {
	// validate lets the binary decode and validate a configuration, and leaves
	// no files behind. The outcome is CouldNotTell if the binary cannot be
	// used. unchecked says what could not be checked on this host.
	validate(ctx context.Context, data []byte) (r result, unchecked string)
	// probe verifies that a dry run of this binary ends before the component
	// starts, and returns the binary's preferred apiVersion. Both results are
	// valid until the binary is replaced.
	probe(ctx context.Context) (preferred string, err error)
}

// components has the constructors by name. A new component needs an entry here
// and a validator.
var components = map[string]func(path, scratchDir string, log *slog.Logger) *binary{
	"kubelet":    newKubelet,
	"kube-proxy": newKubeProxy,
}

// Names returns the names of all components, sorted.
func Names() []string { return slices.Sorted(maps.Keys(components)) }

// New returns the component with this name; path is its binary, or a name in
// PATH. It creates scratchDir for temporary files. The error says whether the
// name is unknown or the binary unusable.
func New(name, path, scratchDir string, log *slog.Logger) (Component, error) {
	component, ok := components[name]
	if !ok {
		return nil, unknownComponent(name)
	}
	if _, err := identify(name, path); err != nil {
		return nil, err
	}

	scratchDir, err := filepath.Abs(scratchDir) // error messages of the binary contain the path
	if err != nil {
		return nil, fmt.Errorf("scratch directory: %w", err)
	}

	return component(path, scratchDir, log), nil
}

func unknownComponent(name string) error {
	return fmt.Errorf("there is no component %q; there are %s", name, strings.Join(Names(), ", "))
}

// binary is a component's program with the kind of its configuration.
type binary struct {
	name, kind string
	runner     runner
	validator
}

func (b *binary) Name() string { return b.name }

func (b *binary) Version(ctx context.Context) (string, error) {
	return queryVersion(ctx, b.name, b.runner)
}

func (b *binary) PreferredVersion(ctx context.Context) (string, error) {
	version, err := b.probe(ctx)
	if err != nil {
		return "", fmt.Errorf("cannot determine the preferred version of the %s's configuration: %w", b.name, err)
	}

	return version, nil
}

func (b *binary) Validate(ctx context.Context, data []byte) Verdict {
	if message := b.checkInput(data); message != "" {
		return Verdict{Outcome: Rejected, Message: message}
	}

	a, unchecked := b.validate(ctx, data)
	if a.outcome == CouldNotTell {
		return Verdict{Message: a.message}
	}

	v := Verdict{Outcome: Accepted, Stage: 1}
	if message := a.objection(); message != "" {
		v.Outcome, v.Message = Rejected, message
		if empty := b.validateEmpty(ctx); empty.outcome != Accepted {
			v.Outcome = CouldNotTell
			v.Message = alsoFails(message, "an empty configuration", empty.message)
		}

		return v
	}

	if unchecked != "" {
		v.Warnings = append(v.Warnings, "not checked: "+unchecked)
	}
	if v.Effective = a.effective; v.Effective == nil {
		v.Warnings = append(v.Warnings, fmt.Sprintf("the %s did not print the configuration with its defaults", b.name))
	}

	return v
}

func (b *binary) validateEmpty(ctx context.Context) result {
	version, err := b.probe(ctx)
	if err != nil {
		return result{message: err.Error()}
	}

	a, _ := b.validate(ctx, emptyConfig(version, b.kind))

	return a
}

// checkInput returns why a configuration must not be passed to the binary, or
// "". The binary would report nothing for an empty document, read only the
// first of two documents, and could run out of memory on YAML aliases.
func (b *binary) checkInput(data []byte) string {
	if len(data) > payload.MaxSize {
		return "larger than 1 MiB"
	}

	err := payload.CheckLimits(data)
	if err == nil {
		err = payload.CheckOneDocument(data)
	}

	switch payload.ProblemOf(err) {
	case "", payload.ProblemSyntax: // the component rejects this itself
		return ""
	case payload.ProblemDocuments:
		return fmt.Sprintf("%v: the %s would read only the first", err, b.name)
	default:
		return err.Error()
	}
}

func emptyConfig(apiVersion, kind string) []byte {
	return []byte("apiVersion: " + apiVersion + "\nkind: " + kind + "\n")
}

// objection returns all errors of the component about a configuration,
// including strict decoding errors, or "".
func (a result) objection() string {
	switch {
	case a.strictError == "":
		return a.message
	case a.message == "":
		return a.strictError
	default:
		return clip(a.message+"; "+a.strictError, maxMessage)
	}
}

// YAML returns the configuration as a document: apiVersion and kind first, then
// the fields sorted by name.
func (e Effective) YAML() ([]byte, error) {
	var document bytes.Buffer
	fields := maps.Clone(e)
	for _, name := range []string{"apiVersion", "kind"} {
		if value, ok := fields[name]; ok {
			fmt.Fprintf(&document, "%s: %s\n", name, value)
			delete(fields, name)
		}
	}

	if len(fields) == 0 {
		return document.Bytes(), nil
	}

	rest, err := yaml.Marshal(fields)
	if err != nil {
		return nil, err
	}

	document.Write(rest)

	return document.Bytes(), nil
}

// The oldest and the newest supported minor version of the kubelet: what the
// automated tests run. The documentation and the chart have the same, see
// test/arch. Other versions are not refused: every binary is probed before it
// is used.
const (
	OldestMinor = 33
	NewestMinor = 37
)

// Outcome is the result of validating a configuration with a component's
// binary. There is no "valid", because some errors appear only when the
// component runs with the configuration.
type Outcome int

// The outcomes. The zero value never leads to a change.
const (
	CouldNotTell Outcome = iota
	Accepted
	Rejected
)

func (o Outcome) String() string { return [...]string{"could not tell", "accepted", "rejected"}[o] }

// Verdict is the result of a dry run.
type Verdict struct {
	Outcome Outcome
	// Stage is the last stage of the dry run: 0 none; 1 the configuration was
	// decoded and validated; 2 the component was initialized, up to before its
	// start; 3 the agent compared the configuration with this machine, and
	// rejected it.
	Stage int
	// Message is the component's error for Rejected, the reason for
	// CouldNotTell, and why stage 2 did not run for Accepted at stage 1. Its
	// length is limited.
	Message string
	// Warnings are warnings of the component, and additional facts that could
	// not be determined.
	Warnings []string
	// Effective is the effective configuration; nil unless stage 1 passed.
	Effective Effective
	// Local is the effective local configuration, printed by the same kind of
	// dry run at the same time, to compare with Effective; nil unless stage 1
	// passed, or if it was not printed (see Warnings).
	Local Effective
	// Origins are the sources of the fields of Effective, by path as in
	// Overridden. Fields with their default are missing. nil if unknown (see
	// Warnings).
	Origins map[string]Origin
	// Hidden are fields that the component prints masked (static pod URL
	// headers) and that differ, or may differ, from the local configuration.
	// They look equal in Effective and Local.
	Hidden []string
	// Assumed has the fields that the agent uses, according to files, flags and
	// defaults; set if Effective is nil.
	Assumed Effective
	// CandidateOnly reports, for CouldNotTell, that the local configuration
	// passed at the same time, so the candidate may be the cause.
	CandidateOnly bool
	// Limits are the kubelet's limits found in this check.
	Limits []Limit
	// Overridden are the payload's fields that a flag of the node's command
	// line overrides, as JSON paths (maxPods, evictionHard[memory.available]).
	Overridden []string
	// Violations are protected fields that the files of a candidate change,
	// found before any run.
	Violations []payload.Difference
}
