// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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
		{"not Ready once", []sighting{up(1), down(11), up(14)}, cost{pods: 1, lost: 1, long: 1, longest: 3 * s}},
		{"an event while it is not Ready", []sighting{up(1), down(11), down(13), up(14)}, cost{pods: 1, lost: 1, long: 1, longest: 3 * s}},
		{"not Ready for a moment, twice", []sighting{up(1), down(11), up(11.25), down(12), up(12.875)},
			cost{pods: 1, lost: 1, longest: 875 * time.Millisecond}},
		{"not Ready twice", []sighting{up(1), down(11), up(12), down(15), up(19)}, cost{pods: 1, lost: 1, long: 1, longest: 4 * s}},
		{"Ready at the very start", []sighting{down(1), up(10), down(12), up(13)}, cost{pods: 1, lost: 1, long: 1, longest: s}},
		{"not Ready at the start", []sighting{down(1), up(13)}, cost{pods: 1, lost: 1, long: 1, longest: 3 * s}},
		{"not Ready in the end", []sighting{up(1), down(25), up(40)}, cost{pods: 1, lost: 1, long: 1, longest: 5 * s}},
		{"not Ready before and after only", []sighting{down(1), up(2), down(31)}, cost{pods: 1}},
		{"deleted while Ready", []sighting{up(1), absent(12)}, cost{pods: 1}},
		{"deleted while not Ready", []sighting{up(1), down(12), absent(15)}, cost{pods: 1, lost: 1, long: 1, longest: 3 * s}},
		{"deleted and created again", []sighting{up(1), absent(12), down(13), up(15)}, cost{pods: 1, lost: 1, long: 1, longest: 3 * s}},
		{"created again, not Ready in the end", []sighting{up(1), absent(12), down(13)}, cost{pods: 1, lost: 1, long: 1, longest: 18 * s}},
		{"deleted, created and deleted again", []sighting{up(1), absent(12), down(13), absent(14)}, cost{pods: 1, lost: 1, long: 1, longest: 2 * s}},
	} {
		assert.Equal(t, costOfPod(tt.seen, at(10), at(30)), tt.want, tt.what)
	}
}
