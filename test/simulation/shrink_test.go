// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// shrink leaves out of a history that fails what does not matter to its
// failure, for some time at most. Two histories fail in the same way if the
// beginnings of their failures are equal.
func shrink(t *testing.T, seed uint64, failure string, limit time.Duration) without {
	deadline := time.Now().Add(limit)
	var best without
	fails := func(x without) bool {
		if time.Now().After(deadline) {
			return false
		}

		o := play(t, planOf(seed, x), false)

		return len(o.failures) > 0 && sameFailure(o.failures[0], failure)
	}
	try := func(change func(x *without)) bool {
		x := best
		x.actions = slices.Clone(best.actions)
		change(&x)
		if !fails(x) {
			return false
		}

		best = x

		return true
	}
	all := planOf(seed, without{})
	for n := 1; n < all.nodes; n++ {
		if try(func(x *without) { x.nodes = n }) {
			break
		}
	}

	try(func(x *without) { x.errors = true })
	try(func(x *without) { x.delays = true })
	// First many actions at a time, then fewer.
	for size := len(all.actions); size > 0; size /= 2 {
		for from := len(all.actions); from > 0; from -= size {
			try(func(x *without) {
				for i := max(0, from-size); i < from; i++ {
					if !slices.Contains(x.actions, i) {
						x.actions = append(x.actions, i)
					}
				}
			})
		}
	}

	slices.Sort(best.actions)

	return best
}

// sameFailure reports whether two failures differ in numbers and names only, as
// far as their first words say.
func sameFailure(a, b string) bool { return kindOf(a) == kindOf(b) }

// kindOf returns the first words of a failure, without those that contain
// digits.
func kindOf(failure string) string {
	words := slices.DeleteFunc(strings.Fields(failure), func(word string) bool { return strings.ContainsAny(word, "0123456789") })
	return strings.Join(words[:min(5, len(words))], " ")
}
