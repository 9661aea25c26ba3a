// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestUIDsAreCutToEightDigits(t *testing.T) {
	const long = "evenkeel-system/crash (UID: 0b52ae12-27a5-4e10-9f3a-0123456789ab), process 12345678-1"
	if got, want := shortUIDs(long), "evenkeel-system/crash (UID: 0b52ae12), process 12345678-1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheLastCauseOfAnErrorIsFound(t *testing.T) {
	for _, c := range []struct{ chain, want string }{
		{`kubelet: failed to decode: strict decoding error: unknown field "maxPodz"`, `unknown field "maxPodz"`},
		{`run Kubelet, err: "failed to parse: bad: value"`, `"failed to parse: bad: value"`},
		{"no chain", "no chain"},
		{"crash-looped: 2 starts, last: exit status 1", "2 starts, last: exit status 1"},
		{"refused current (UID: 248e563f)", "refused current (UID: 248e563f)"},
		{"https://127.0.0.1:6443 is down", "https://127.0.0.1:6443 is down"},
		{"", ""},
	} {
		links := chain(c.chain)
		assert.Equal(t, links[len(links)-1], c.want, c.chain)
	}
}

func TestALongLineKeepsItsBeginningAndItsLastCause(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"short: enough: stays", "short: enough: stays"},
		{"ConfigOK False (Because): using last-known-good (UID: 248e563f): refused: a typo", "ConfigOK False (Because): … a typo"},
		{"Preflight: node n refuses this (Because: failed to load: failed to decode: a typo)", "Preflight: node n refuses this (Because: … a typo)"},
		{"demo revision 1: Progressing: revision 1: 0 of 21 nodes", "demo revision 1: Progressing: … 0 of 21 nodes"},
		{"demo revision 2: Halted: 1 node failed: push a fix, or: kubectl evenkeel rollout undo", "demo revision 2: … push a fix, or: kubectl evenkeel rollout undo"},
		{"error: node n rolled back (CrashLooped): exit status 1: invalid reservation; rpc error: unknown method", "error: node n rolled back (CrashLooped): … invalid reservation"},
		{"note: a field that nobody knows: a kubelet without it rejects it", "note: a field that nobody knows: a kubelet without it rejects it"},
		{strings.Repeat("no chain ", 10), strings.Repeat("no chain ", 10)},
	} {
		assert.Equal(t, brief(c.line, 48), c.want, c.line)
	}
}

func TestLinesAreWrappedBetweenWordsAndKeepTheirIndentation(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"short", []string{"short"}},
		{"a\n\nb", []string{"a", "", "b"}},
		{"  one two three four", []string{"  one two", "    three", "    four"}},
		{"abcdefghijklmnop", []string{"abcdefghij", "  klmnop"}},
		{"ends here. ", []string{"ends here."}},
		{"äöüäöüäöüä", []string{"äöüäöüäöüä"}},
	} {
		got := wrap(c.text, 10)
		assert.That(t, slices.Equal(got, c.want), "%q: got %q, want %q", c.text, got, c.want)
	}
}

func TestTheEndOfALogOmitsChatter(t *testing.T) {
	const log = "level=INFO msg=first\ntime=1 level=DEBUG msg=detail\nI1127 18:00:00 chatter=<\n\tmore\n >\nE1127 18:00:01 kubelet failed\nlevel=WARN msg=last\nI1127 18:00:02 chatter\n"
	if got, want := newest(log, 2), []string{"E1127 18:00:01 kubelet failed", "level=WARN msg=last"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := newest("I1127 18:00:00 a\nI1127 18:00:01 b", 1), []string{"I1127 18:00:01 b"}; !slices.Equal(got, want) {
		t.Errorf("a log of chatter alone: got %q, want %q", got, want)
	}
}

func TestOutputIsReducedToWhatIsNew(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"note: node demo: ConfigOK is not True", ""},
		{"the assignment stays until you assign another configuration", ""},
		{"node demo runs ConfigMap a/b on trial: the kubelet must stay healthy for 5s: run: invalid", ""},
		{"node demo has no final verdict yet (CrashLooped): it runs ConfigMap a/b", ""},
		{"demo: the controller has not observed this change yet; is it running?", ""},
		{"note: unknown field  ", "note: unknown field"},
		{"node demo runs ConfigMap a/b on trial: the kubelet must stay healthy for 5s", "node demo runs ConfigMap a/b on trial: the kubelet must stay healthy for 5s"},
		{"demo revision 1: Progressing, 1/3 steps done, 6/21 updated: revision 1: 6 of 21 nodes updated", "demo revision 1: Progressing, 1/3 steps done, 6/21 updated"},
		{"demo revision 1: Complete, 3/3 steps done, 21/21 updated: revision 1: done", "demo revision 1: Complete, 3/3 steps done, 21/21 updated: revision 1: done"},
		{"demo revision 2: Halted: 1 node failed: worker-1 CrashLooped; push a fixed configuration, or: undo", "demo revision 2: Halted: 1 node failed: worker-1 CrashLooped"},
		{"rollout demo created; follow it with: kubectl evenkeel rollout status demo -w", "rollout demo created"},
	} {
		assert.Equal(t, relevant(c.line, 90), c.want, c.line)
	}
}
