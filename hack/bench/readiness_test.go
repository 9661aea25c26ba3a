package main

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

var midnight = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return midnight.Add(time.Duration(seconds * float64(time.Second)))
}

func up(seconds float64) sighting     { return sighting{at: at(seconds), ready: true} }
func down(seconds float64) sighting   { return sighting{at: at(seconds)} }
func absent(seconds float64) sighting { return sighting{at: at(seconds), gone: true} }

func (s sighting) restarted(n int) sighting {
	s.restarts = n
	return s
}

func TestTheCostOfARestartIsTheTimeThatAPodWasNotReady(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		what string
		seen []sighting
		want cost
	}{
		{"never seen", nil, cost{}},
		{"created later", []sighting{down(12), up(14)}, cost{}},
		{"deleted before", []sighting{up(1), absent(9)}, cost{}},
		{"Ready all the time, with an event", []sighting{up(1), up(15)}, cost{pods: 1}},
		{"not Ready once", []sighting{up(1), down(11), up(14)}, cost{pods: 1, lost: 1, long: 1, unready: 3 * s, longest: 3 * s}},
		{"an event while it is not Ready", []sighting{up(1), down(11), down(13), up(14)}, cost{pods: 1, lost: 1, long: 1, unready: 3 * s, longest: 3 * s}},
		{"not Ready for a moment, twice", []sighting{up(1), down(11), up(11.25), down(12), up(12.875)},
			cost{pods: 1, lost: 1, unready: 1125 * time.Millisecond, longest: 875 * time.Millisecond}},
		{"not Ready twice", []sighting{up(1), down(11), up(12), down(15), up(19)}, cost{pods: 1, lost: 1, long: 1, unready: 5 * s, longest: 4 * s}},
		{"Ready at the very start", []sighting{down(1), up(10), down(12), up(13)}, cost{pods: 1, lost: 1, long: 1, unready: s, longest: s}},
		{"not Ready at the start", []sighting{down(1), up(13)}, cost{pods: 1, lost: 1, long: 1, unready: 3 * s, longest: 3 * s}},
		{"not Ready in the end", []sighting{up(1), down(25), up(40)}, cost{pods: 1, lost: 1, long: 1, unready: 5 * s, longest: 5 * s}},
		{"not Ready before and after only", []sighting{down(1), up(2), down(31)}, cost{pods: 1}},
		{"deleted while Ready", []sighting{up(1), absent(12)}, cost{pods: 1}},
		{"deleted while not Ready", []sighting{up(1), down(12), absent(15)}, cost{pods: 1, lost: 1, long: 1, unready: 3 * s, longest: 3 * s}},
		{"deleted and created again", []sighting{up(1), absent(12), down(13), up(15)}, cost{pods: 1, lost: 1, long: 1, unready: 3 * s, longest: 3 * s}},
		{"created again, not Ready in the end", []sighting{up(1), absent(12), down(13)}, cost{pods: 1, lost: 1, long: 1, unready: 18 * s, longest: 18 * s}},
		{"deleted, created and deleted again", []sighting{up(1), absent(12), down(13), absent(14)}, cost{pods: 1, lost: 1, long: 1, unready: 2 * s, longest: 2 * s}},
		{"restarted containers", []sighting{up(1).restarted(2), down(11).restarted(3), up(12).restarted(4)},
			cost{pods: 1, lost: 1, long: 1, unready: s, longest: s, restarts: 2}},
		{"restarts of a pod that is created again", []sighting{up(1).restarted(2), absent(11), up(12), up(13).restarted(1)},
			cost{pods: 1, lost: 1, long: 1, unready: s, longest: s, restarts: 1}},
	} {
		assert.Equal(t, costOfPod(tt.seen, at(10), at(30)), tt.want, tt.what)
	}
}

func TestTheCostOfPodsIsTheirSumAndTheLongestInterval(t *testing.T) {
	r := readiness{
		"a": {up(1), down(11), up(14)},
		"b": {up(1).restarted(1), down(11).restarted(2), up(12)},
		"c": {up(1)},
		"d": {up(1), down(11)},
	}
	want := cost{pods: 3, lost: 2, long: 2, unready: 4 * time.Second, longest: 3 * time.Second, restarts: 1}
	assert.Equal(t, r.cost([]string{"a", "b", "c"}, at(10), at(30)), want)
}

func TestAWatchThatStartsAgainKeepsWhatWasSeen(t *testing.T) {
	r := readiness{}
	r.list(at(1), map[string]sighting{"changed": {ready: true}, "deleted": {}, "same": {ready: true}})
	r.see("deleted", down(11))
	// The watch ends at 12 s.
	r.list(at(15), map[string]sighting{"changed": {}, "same": {ready: true}, "new": {}})
	r.see("changed", up(17))
	r.list(at(20), map[string]sighting{"changed": {ready: true}, "same": {ready: true}, "new": {ready: true}})
	for name, want := range map[string]cost{
		"changed": {pods: 1, lost: 1, long: 1, unready: 2 * time.Second, longest: 2 * time.Second},
		"deleted": {pods: 1, lost: 1, long: 1, unready: 5 * time.Second, longest: 5 * time.Second},
		"same":    {pods: 1},
		"new":     {},
	} {
		assert.Equal(t, r.cost([]string{name}, at(10), at(30)), want, name)
	}
	for name, want := range map[string]bool{"changed": true, "deleted": false, "new": true, "never seen": false} {
		got := r.ready(name)
		assert.That(t, got == want, "%s: ready is %t, want %t", name, got, want)
	}
}
