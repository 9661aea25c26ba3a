// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/evenkeel/evenkeel/internal/node/trial"
)

const (
	group      = "state.evenkeel.dev/"
	apiVersion = group + "v1"
)

// maxFile is larger than any record or ConfigMap, even with every character
// escaped. A larger file is not read.
const maxFile = 16 << 20

// record is a file that contains a part of the state, in the JSON form of that
// part.
type record struct {
	name      string
	kind      string
	versioned bool // kept separately for each version of the component
	part      func(*trial.State) any
}

var badConfigs = record{"bad-configs", "BadConfigs", true, func(s *trial.State) any { return &s.Bad }}

// records are the files of the state, in the order in which they are written:
// after a crash between any two, the next start decides the same again. What
// must never run comes first; then what ends, and current, before everything
// about it; a verdict before the trial that it ends; last-known-good after the
// promotion that it is based on, and after a current that is local.
var records = []record{
	{"revoked", "RevokedConfigs", false, func(s *trial.State) any { return &s.Revoked }},
	{"temporary", "TemporaryAssignment", false, func(s *trial.State) any { return &s.Temporary }},
	{"current", "CurrentConfig", false, func(s *trial.State) any { return &s.Current }},
	badConfigs,
	{"promoted", "PromotedConfigs", true, func(s *trial.State) any { return &s.Promoted }},
	{"last-known-good", "LastKnownGoodConfig", false, func(s *trial.State) any { return &s.LastKnownGood }},
	{"startups", "Startups", true, func(s *trial.State) any { return &s.Startups }},
	{"trial", "TrialRecord", true, func(s *trial.State) any { return &s.Trial }},
}

// versionRecord contains the version of the component that saved last. It is
// not part of the state, and is written after it.
var versionRecord = record{name: "component-version", kind: "ComponentVersion"}

// file is what a record's file contains.
type file[T any] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Content    T      `json:"content"` // required: a missing value is not the same as an empty one
}

// encode returns a record as indented JSON.
func (r record) encode(content any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(file[any]{apiVersion, r.kind, content})

	return b.Bytes(), err
}

// decode is strict: it accepts one JSON value of this version and kind, with
// each key once and the content present. It ignores unknown fields: a later
// agent may have added them, and a downgrade must not lose `current` because of
// that. There is no checksum, because the proposal lets operators repair these
// files by hand.
func (r record) decode(data []byte, into any) error {
	var f file[json.RawMessage]
	if err := json.Unmarshal(data, &f); err != nil { // of all data: nothing may follow the value
		return err
	}

	switch {
	case f.APIVersion != apiVersion && strings.HasPrefix(f.APIVersion, group):
		return fmt.Errorf("it was written by a future version: apiVersion %q, supported is %q", f.APIVersion, apiVersion)
	case f.APIVersion != apiVersion:
		return fmt.Errorf("apiVersion %q is not supported, only %q", f.APIVersion, apiVersion)
	case f.Kind != r.kind:
		return fmt.Errorf("kind %q is not %q", f.Kind, r.kind)
	}

	var all map[string]any
	switch duplicates, err := kjson.UnmarshalStrict(data, &all, kjson.DisallowDuplicateFields); {
	case err != nil:
		return err
	case len(duplicates) > 0: // encoding/json uses the last one
		return duplicates[0]
	case f.Content == nil:
		return errors.New("it has no content")
	}

	return json.Unmarshal(f.Content, into)
}

// decodeInto changes the state only if the record is valid.
func (r record) decodeInto(data []byte, s *trial.State) error {
	if r.part == nil {
		return r.decode(data, new(string))
	}

	state := *s
	if err := r.decode(data, r.part(&state)); err != nil {
		return err
	}
	if t := state.Trial; t != nil && (t.Terms.Threshold < 0 || t.Terms == (trial.Terms{}) && !hasTerms(data)) {
		return errors.New("the trial has no terms") // it would be passed, or fail, at once
	}

	for _, c := range []*trial.AdoptedConfig{&state.Current, &state.LastKnownGood} {
		c.Rollout.AssignedAt.Time = c.Rollout.AssignedAt.UTC() // as the source returns it
	}
	if err := check(state); err != nil {
		return err
	}

	*s = state

	return nil
}

// hasTerms reports whether the record of a trial has terms.
func hasTerms(data []byte) bool {
	var r struct {
		Content struct {
			Terms *trial.Terms `json:"terms"`
		} `json:"content"`
	}
	return json.Unmarshal(data, &r) == nil && r.Content.Terms != nil
}

// check returns an error for values that no agent writes.
func check(s trial.State) error {
	var err error
	for _, c := range []trial.Config{s.Current.Config, s.LastKnownGood.Config} {
		if !c.IsLocal() {
			err = errors.Join(err, checkRevision(c.Revision), checkDigest(c.Checkpoint), checkDigest(c.SHA256),
				checkDigest(c.ResolvedSHA256))
		} else if c != (trial.Config{}) {
			err = errors.New("it has no revision, but other fields of a configuration")
		}
	}

	if slices.Contains(s.Revoked, "") {
		err = errors.New("an empty UID")
	}

	for i, b := range s.Bad {
		err = errors.Join(err, checkRevision(b.Revision), checkDigest(b.SHA256), checkDigest(b.ResolvedSHA256))
		if slices.ContainsFunc(s.Bad[:i], func(earlier trial.BadConfig) bool { return earlier.Revision == b.Revision }) {
			err = errors.Join(err, fmt.Errorf("two entries for %s", b.Revision))
		}
	}

	for _, p := range s.Promoted {
		err = errors.Join(err, checkRevision(p.Revision), checkDigest(p.SHA256), checkDigest(p.Resolved))
	}
	if t := s.Trial; t != nil {
		err = errors.Join(err, checkRevision(t.Revision))
	}
	if t := s.Temporary; t != nil {
		err = errors.Join(err, checkRevision(t.Revision))
	}

	return err
}

var digest = regexp.MustCompile(`^([0-9a-f]{64})?$`)

func checkDigest(s string) error {
	if !digest.MatchString(s) {
		return fmt.Errorf("%q is not a sha256", s)
	}

	return nil
}
