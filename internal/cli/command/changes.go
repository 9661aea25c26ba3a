// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// Changes finds the rows of a list that changed since the round before. Between Begin and End, Changed must be called for each row.
type Changes struct {
	ErrOut io.Writer
	Noun   string // of a row

	last, now map[string]string // the lasting part of a row, by name
}

// Begin begins a round. It reports whether it is the first.
func (c *Changes) Begin() bool {
	c.last, c.now = c.now, map[string]string{}
	return c.last == nil
}

// Changed reports whether a row is new, or its lasting part is another one than in the round before.
func (c *Changes) Changed(name, lasting string) bool {
	was, existed := c.last[name]
	c.now[name] = lasting
	return !existed || was != lasting
}

// End ends a round: it names the rows that are no longer listed.
func (c *Changes) End() {
	for _, name := range slices.SortedFunc(maps.Keys(c.last), printable.CompareNatural) {
		if _, exists := c.now[name]; !exists {
			fmt.Fprintf(c.ErrOut, "note: %s %s is no longer listed\n", c.Noun, printable.Line(name))
		}
	}
}
