// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// figure is one result.
type figure struct {
	What  string  // the same for all numbers of nodes
	Text  string  // the value with its unit
	Value float64 // for comparisons; 0: none
	Limit string  // empty: there is none
	Over  bool    // the limit is exceeded
}

// measured has the figures of one part with a number of nodes.
type measured struct {
	Part    string
	Nodes   int
	When    time.Time
	Figures []figure
}

// results are the figures of all runs so far, from a file: one run of a large fleet can be made part by part.
type results struct {
	path string
	All  []measured
}

// readResults reads a file of results. A missing one has none.
func readResults(path string) (*results, error) {
	r := &results{path: path}
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &r.All); err != nil {
		return nil, fmt.Errorf("%s: %w: delete it to begin again", path, err)
	}
	return r, nil
}

// save writes the file.
func (r *results) save() (err error) {
	defer must.Catch(&err)

	raw := must.Get(json.MarshalIndent(r.All, "", " "))
	must.OK(os.MkdirAll(filepath.Dir(r.path), 0o755))
	return os.WriteFile(r.path, append(raw, '\n'), 0o644)
}

// replace stores the figures of a part, instead of those of an earlier run of the same part with as many nodes.
func (r *results) replace(m measured) {
	r.All = slices.DeleteFunc(r.All, func(old measured) bool { return old.Part == m.Part && old.Nodes == m.Nodes })
	r.All = append(r.All, m)
}

// value returns the value of a figure, and false if it was not measured.
func (r *results) value(part string, nodes int, what string) (float64, bool) {
	for _, m := range r.All {
		for _, f := range m.Figures {
			if m.Part == part && m.Nodes == nodes && f.What == what && f.Value != 0 {
				return f.Value, true
			}
		}
	}
	return 0, false
}

// over returns the figures with a number of nodes that exceed their limits.
func (r *results) over(nodes int) []string {
	var over []string
	for _, m := range r.All {
		for _, f := range m.Figures {
			if m.Nodes == nodes && f.Over {
				over = append(over, m.Part+": "+f.What)
			}
		}
	}
	return over
}

// table returns all results as a table in Markdown: a row for each figure, a column for each number of nodes. parts is the order
// of the parts; those that it does not name follow.
func (r *results) table(parts []string) string {
	var nodes []int
	for _, m := range r.All {
		if !slices.Contains(nodes, m.Nodes) {
			nodes = append(nodes, m.Nodes)
		}
		if !slices.Contains(parts, m.Part) {
			parts = append(slices.Clone(parts), m.Part)
		}
	}
	slices.Sort(nodes)
	var out strings.Builder
	out.WriteString("| part | figure | limit |")
	for _, n := range nodes {
		fmt.Fprintf(&out, " %s |", printable.Count(n, "node"))
	}
	out.WriteString("\n| --- | --- | --- |" + strings.Repeat(" --- |", len(nodes)) + "\n")
	for _, part := range parts {
		for _, row := range r.rows(part) {
			fmt.Fprintf(&out, "| %s | %s | %s |", part, row.What, row.Limit)
			for _, n := range nodes {
				fmt.Fprintf(&out, " %s |", r.cell(part, n, row.What))
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// rows returns one figure for each row of a part, in the order of the last run.
func (r *results) rows(part string) []figure {
	var rows []figure
	for _, m := range slices.Backward(r.All) {
		for _, f := range m.Figures {
			i := slices.IndexFunc(rows, func(known figure) bool { return known.What == f.What })
			switch {
			case m.Part != part:
			case i < 0:
				rows = append(rows, f)
			case rows[i].Limit == "":
				rows[i].Limit = f.Limit
			}
		}
	}
	return rows
}

// cell returns the text of a figure; "-" if it was not measured.
func (r *results) cell(part string, nodes int, what string) string {
	for _, m := range r.All {
		for _, f := range m.Figures {
			if m.Part == part && m.Nodes == nodes && f.What == what {
				if f.Over {
					return f.Text + " (over)"
				}
				return f.Text
			}
		}
	}
	return "-"
}
