package source

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// What an agent writes at most of each text, in bytes as storedSize counts them. A status in which every text and list is
// as long as it can be stays below v1alpha1.MaxStatusBytes: 10 bad configurations of about 3.2 kB each, 100 fields of
// 163 bytes, error and message of 4 kB each, and 6 kB for all the rest. So no status has to be shortened as a whole.
const (
	mostMessage   = 4096 // error, the condition's message
	mostBadReason = 2048
	mostField     = 160 // an overridden field
)

// boundStatus shortens what the API server would refuse: one entry or one byte too many must not keep the rest from being
// written.
func boundStatus(s v1alpha1.NodeConfigStatus) v1alpha1.NodeConfigStatus {
	s = *s.DeepCopy()
	s.Error = shorten(s.Error, mostMessage)
	if t := s.Trial; t != nil {
		t.DurationSeconds = min(t.DurationSeconds, v1alpha1.MaxTrialSeconds)
	}
	s.BadConfigs = s.BadConfigs[:min(len(s.BadConfigs), v1alpha1.MaxBadConfigs)]
	for i := range s.BadConfigs {
		s.BadConfigs[i].Reason = shorten(s.BadConfigs[i].Reason, mostBadReason)
	}
	for i := range s.OverriddenFields {
		s.OverriddenFields[i] = shorten(s.OverriddenFields[i], mostField)
	}
	if more := len(s.OverriddenFields) - v1alpha1.MaxOverriddenFields; more > 0 {
		s.OverriddenFields = append(s.OverriddenFields[:v1alpha1.MaxOverriddenFields-1], fmt.Sprintf("and %d more", more+1))
	}
	s.Conditions = s.Conditions[:min(len(s.Conditions), v1alpha1.MaxConditions)]
	for i := range s.Conditions {
		s.Conditions[i].Message = shorten(s.Conditions[i].Message, mostMessage)
	}
	return s
}

// essence is what a status must say at least, with why the API server refused the whole: what is assigned, what runs, what
// is bad, and ConfigOK with its reason.
func essence(s v1alpha1.NodeConfigStatus, refusal error) v1alpha1.NodeConfigStatus {
	const most = 200
	s = *s.DeepCopy()
	s.OverriddenFields = nil
	s.Error = shorten("the API server refused the whole status: "+refusal.Error(), 2*most) + "; " + shorten(s.Error, most)
	for i := range s.BadConfigs {
		s.BadConfigs[i].Reason = shorten(s.BadConfigs[i].Reason, most)
	}
	for i := range s.Conditions {
		s.Conditions[i].Message = shorten(s.Conditions[i].Message, most)
	}
	return s
}

// ellipsis stands for the middle of a text that was too long.
const ellipsis = " ... "

// shorten returns a text of at most most bytes, as storedSize counts them. It leaves out the middle: a message begins with
// what it is about, and ends with the innermost cause. The result is valid UTF-8. most must be more than the ellipsis.
func shorten(s string, most int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if storedSize(s) <= most {
		return s
	}
	head := (most - len(ellipsis)) * 3 / 4
	tail := most - len(ellipsis) - head
	first, last := 0, len(s)
	for first < len(s) {
		r, n := utf8.DecodeRuneInString(s[first:])
		if head -= storedRune(r); head < 0 {
			break
		}
		first += n
	}
	for last > first {
		r, n := utf8.DecodeLastRuneInString(s[:last])
		if tail -= storedRune(r); tail < 0 {
			break
		}
		last -= n
	}
	return s[:first] + ellipsis + s[last:]
}

// storedSize is how many bytes a text counts for in the admission policy evenkeel-node, or a little more: never fewer than
// the API server stores.
func storedSize(s string) int {
	size := 0
	for _, r := range s {
		size += storedRune(r)
	}
	return size
}

// storedRune counts one character. The policy writes a text as Go quotes it, and adds 5 for each character that JSON writes
// with more bytes than that, and for each backslash that stands before certain letters.
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
