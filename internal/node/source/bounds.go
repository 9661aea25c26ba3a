// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// The most bytes that an agent writes of each text, as storedRune counts them.
// A status in which every text and list has its maximum stays below
// v1alpha1.MaxStatusBytes: 10 bad configurations of about 3.2 kB, 100 fields of
// 163 bytes, error and message of 4 kB each, drift of about 3 kB, and 7 kB for
// the rest, without an answer about flags.
const (
	maxMessage   = 4096 // error, the message of ConfigOK and of KubeletLimited
	maxReadiness = 512  // the messages of the other conditions
	maxBadReason = 2048
	maxField     = 160 // an overridden field, and each file and field of drift
)

// boundStatus shortens each text and list to what the API server accepts: one
// entry or byte too many would block the whole status. hide removes secrets
// from the texts.
func boundStatus(s v1alpha1.NodeConfigStatus, hide func(string) string) v1alpha1.NodeConfigStatus {
	shorten := func(text string, limit int) string { return shorten(hide(text), limit) }
	s = *s.DeepCopy()
	s.Error = shorten(s.Error, maxMessage)
	if t := s.Trial; t != nil {
		t.DurationSeconds = min(t.DurationSeconds, v1alpha1.MaxTrialSeconds)
	}

	s.BadConfigs = s.BadConfigs[:min(len(s.BadConfigs), v1alpha1.MaxBadConfigs)]
	for i := range s.BadConfigs {
		s.BadConfigs[i].Reason = shorten(s.BadConfigs[i].Reason, maxBadReason)
	}

	s.OverriddenFields = boundNames(s.OverriddenFields, v1alpha1.MaxOverriddenFields)
	if d := s.Drift; d != nil {
		d.Files, d.Fields = boundNames(d.Files, v1alpha1.MaxDriftFiles), boundNames(d.Fields, v1alpha1.MaxDriftFields)
		d.NotCompared = shorten(d.NotCompared, v1alpha1.MaxDriftNotCompared)
	}

	if p := s.Preflight; p != nil {
		p.Message = shorten(p.Message, v1alpha1.MaxPreflightMessage)
	}

	s.Conditions = s.Conditions[:min(len(s.Conditions), v1alpha1.MaxConditions)]
	for i := range s.Conditions {
		limit := maxReadiness
		if t := s.Conditions[i].Type; t == v1alpha1.ConditionConfigOK || t == v1alpha1.ConditionKubeletLimited {
			limit = maxMessage
		}

		s.Conditions[i].Message = shorten(s.Conditions[i].Message, limit)
	}

	return s
}

// boundTime returns a time that the API server accepts from a node: this one,
// or 1970 if it is in no usual year. A wrong clock, or
// 9999-12-31T23:59:59-23:59 in a spec, would block the whole status.
func boundTime(t time.Time) time.Time {
	if year := t.UTC().Year(); t.IsZero() || year >= 1970 && year <= 2999 {
		return t
	}

	return time.Unix(0, 0).UTC()
}

// boundNames shortens each name. If there are more than limit, the last one
// says how many are left out.
func boundNames(names []string, limit int) []string {
	for i := range names {
		names[i] = shorten(names[i], maxField)
	}
	if more := len(names) - limit; more > 0 {
		names = append(names[:limit-1], fmt.Sprintf("and %d more", more+1))
	}

	return names
}

// minimalStatus reduces a status that the API server refused to what readers
// need: the assigned and the active configuration, the bad ones, ConfigOK with
// its reason, and the refusal.
func minimalStatus(s v1alpha1.NodeConfigStatus, refusal error) v1alpha1.NodeConfigStatus {
	const limit = 200
	s = *s.DeepCopy()
	s.OverriddenFields, s.Preflight, s.Drift, s.ResolvedValues = nil, nil, nil, nil
	s.Error = shorten("the API server refused the whole status: "+refusal.Error(), 2*limit) + "; " + shorten(s.Error, limit)
	for i := range s.BadConfigs {
		s.BadConfigs[i].Reason = shorten(s.BadConfigs[i].Reason, limit)
	}

	for i := range s.Conditions {
		s.Conditions[i].Message = shorten(s.Conditions[i].Message, limit)
	}

	return s
}

// shorten cuts a text to limit bytes, as the admission policy evenkeel-node
// counts them. It leaves out the middle, because a message begins with its
// subject and ends with the innermost cause. The result is valid UTF-8.
func shorten(s string, limit int) string {
	return printable.Shorten(strings.ToValidUTF8(s, string(utf8.RuneError)), limit, storedRune)
}

// storedRune is the number of bytes of a character in the policy, which may
// count more than the API server stores, never fewer. The policy writes a text
// as Go quotes it, and adds 5 for each character that JSON encodes with more
// bytes, and for each backslash before certain letters.
func storedRune(r rune) int {
	switch {
	case r == '\\', r < ' ', r == 0x7f:
		return 9
	case r == '<', r == '>', r == '&':
		return 6
	case r == '"':
		return 2
	case strconv.IsPrint(r):
		return utf8.RuneLen(r)
	case r > 0xffff:
		return 10
	default:
		return 6
	}
}
