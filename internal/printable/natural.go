// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"cmp"
	"strings"
)

// CompareNatural compares two names, and numbers in them by their values: w-2 is before w-10.
func CompareNatural(a, b string) int {
	for x, y := a, b; ; {
		i, j := digits(x), digits(y)
		switch {
		case x == "" || y == "":
			return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b)) // 07 and 7 are different names
		case i > 0 && j > 0:
			m, n := strings.TrimLeft(x[:i], "0"), strings.TrimLeft(y[:j], "0")
			if order := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); order != 0 {
				return order
			}
			x, y = x[i:], y[j:]
		case x[0] != y[0]:
			return cmp.Compare(x[0], y[0])
		default:
			x, y = x[1:], y[1:]
		}
	}
}

// digits returns the number of digits at the beginning.
func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
