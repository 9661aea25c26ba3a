// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestNamesAreComparedNaturally(t *testing.T) {
	for _, want := range []string{"w-1 w-2 w-10 w-11 w-100", "a1b2 a1b10 a2b1", "a a01 a1 b", "10 w", "ip-10-0-2-9 ip-10-0-10-1", "w w-", "9 18446744073709551616"} {
		names := strings.Fields(want)
		slices.Reverse(names)
		slices.SortFunc(names, CompareNatural)
		assert.Equal(t, strings.Join(names, " "), want)
	}
}

func TestTheNaturalOrderIsTotal(t *testing.T) {
	name := rapid.StringMatching(`[a0-2-]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c")
		assert.Must(t, CompareNatural(a, b) == -CompareNatural(b, a) && (CompareNatural(a, b) == 0) == (a == b),
			"%q and %q: %d and %d", a, b, CompareNatural(a, b), CompareNatural(b, a))
		if CompareNatural(a, b) < 0 && CompareNatural(b, c) < 0 {
			assert.Must(t, CompareNatural(a, c) < 0, "%q < %q < %q, but not the first and the last", a, b, c)
		}
	})
}
