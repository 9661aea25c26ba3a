// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestAFieldWithALimitIsProtectedOnlyBeyondIt(t *testing.T) {
	const verbosity = " (free up to 7 or the local value)"
	const pids = " (free up to the local value; -1 and 0 are no limit)"
	number := func(text string) any { return json.Number(text) }
	for _, tt := range []struct {
		name, path   string
		value, local any
		want         string // empty if it is allowed
	}{
		{"as loud as is free", "logging.verbosity", number("7"), number("0"), ""},
		{"louder", "logging.verbosity", number("8"), number("0"), "logging.verbosity would be 8, but is 0 locally" + verbosity},
		{"with an exponent", "logging.verbosity", number("1e1"), number("0"), "logging.verbosity would be 1e1, but is 0 locally" + verbosity},
		{"louder than a node that is loud", "logging.verbosity", number("10"), number("9"), "logging.verbosity would be 10, but is 9 locally" + verbosity},
		{"quiet, whatever is local", "logging.verbosity", number("2"), nil, ""},
		{"high verbosity, unknown local value", "logging.verbosity", number("10"), nil, "logging.verbosity would be 10, but is unset locally" + verbosity},
		{"unset verbosity", "logging.verbosity", nil, number("2"), "logging.verbosity would be unset, but is 2 locally" + verbosity},
		{"no number", "logging.verbosity", "high", number("2"), `logging.verbosity would be "high", but is 2 locally` + verbosity},
		{"no whole number", "logging.verbosity", number("6.5"), number("2"), `logging.verbosity would be 6.5, but is 2 locally` + verbosity},
		{"more than a number can be", "logging.verbosity", number("1e99"), number("2"), `logging.verbosity would be 1e99, but is 2 locally` + verbosity},
		{"something around it", "logging", "x", object{"verbosity": 0}, `logging would be "x", but is {"verbosity":0} locally`},
		{"a limit where there was none", "podPidsLimit", number("100"), number("-1"), ""},
		{"no limit in another spelling", "podPidsLimit", number("0"), number("-1"), ""},
		{"a lower limit", "podPidsLimit", number("100"), number("1000"), ""},
		{"a higher limit", "podPidsLimit", number("1001"), number("1000"), "podPidsLimit would be 1001, but is 1000 locally" + pids},
		{"no limit", "podPidsLimit", number("-1"), number("1000"), "podPidsLimit would be -1, but is 1000 locally" + pids},
		{"no limit, as 0", "podPidsLimit", 0.0, number("1000"), "podPidsLimit would be 0, but is 1000 locally" + pids},
		{"a limit, unknown local value", "podPidsLimit", number("100"), nil, "podPidsLimit would be 100, but is unset locally" + pids},
		{"a number that no float counts exactly", "podPidsLimit", number("9007199254740993"), number("9007199254740992"),
			"podPidsLimit would be 9007199254740993, but is 9007199254740992 locally" + pids},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want []string
			if tt.want != "" {
				want = append(want, tt.want)
			}

			expect(t, DefaultProtection(), at(tt.path, tt.value), at(tt.path, tt.local), nil, want...)
			// A named field, or a named parent, has no limit.
			for _, list := range []string{"+" + tt.path, tt.path} {
				without, _, _ := strings.Cut(tt.want, " (")
				if without == "" {
					without = fmt.Sprintf("%s would be %v, but is %s locally", tt.path, tt.value, render("", tt.local))
				}

				expect(t, parse(t, list), at(tt.path, tt.value), at(tt.path, tt.local), nil, without)
			}

			expect(t, parse(t, "-"+tt.path), at(tt.path, tt.value), at(tt.path, tt.local), nil)
		})
	}
}
