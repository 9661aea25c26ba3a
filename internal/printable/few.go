// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Few joins at most ten names, and counts the others.
func Few(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}

	return strings.Join(names, ", ")
}

// First joins the first words, and shows whether there are more. It is for a
// text that has their number, or the command that lists them.
func First(words []string, most int, separator string) string {
	if len(words) > most {
		words = append(slices.Clip(words[:most]), "...")
	}

	return strings.Join(words, separator)
}

// Verb returns the form of a verb that follows a number of things.
func Verb(n int, one, many string) string {
	if n == 1 {
		return one
	}

	return many
}

// Count returns a number with its noun, which takes an s in the plural.
func Count[N ~int | ~int32 | ~int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", n, noun)
}

var shellWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Shell joins words to a command line, and quotes those that a shell would
// change.
func Shell(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		if quoted[i] = word; !shellWord.MatchString(word) {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}

	return strings.Join(quoted, " ")
}

// MostFirst returns the keys of counts, the highest count first, then in
// natural order.
func MostFirst(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), CompareNatural(a, b))
	})
}

// CompareNatural compares two names, and numbers in them by their values: w-2
// is before w-10.
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
