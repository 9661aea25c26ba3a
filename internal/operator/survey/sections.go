// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
	"fmt"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// Section is a part of a report for people: a table, or items with details.
type Section struct {
	Title  string
	Header []string
	Rows   [][]string
	Items  []Item
}

// Item is a sentence about nodes, with further lines.
type Item struct {
	Of    Members
	Words string
	Lines []string
}

// Sections returns all of the report but the summary.
func (r *Report) Sections() []Section {
	table := Section{Title: "Configurations", Header: []string{"CONFIGURATION", "NODES", "KUBELET", "POOL", "INSTANCE-TYPE"}}
	details := Section{Title: "Differences from configuration 1"}
	risks, unread, limits := Section{Title: "Risks"}, Section{Title: "Not read"}, Section{Title: "Not covered"}
	if r.Judged != nil {
		table.Header = append(table.Header, "WITH "+r.Judged.Version)
		limits.Items = append(limits.Items, Item{Words: "not judged: " + r.Judged.NotChecked})
	}

	for _, c := range r.Configurations {
		item := Item{Of: c.Members, Words: fmt.Sprintf("configuration %d", c.Number)}
		row := []string{fmt.Sprint(c.Number), fmt.Sprint(c.Nodes), few(c.Kubelets), few(c.Pools), few(c.InstanceTypes)}
		if v := c.Verdict; v != nil {
			row = append(row, string(v.Outcome))
			if v.Message != "" {
				item.Lines = append(item.Lines, fmt.Sprintf("with kubelet %s: %s: %s", r.Judged.Version, v.Outcome, v.Message))
			}
		}

		for _, d := range c.Differences {
			item.Lines = append(item.Lines, fmt.Sprintf("%s: %s, not %s", d.Field, d.Value, d.MostCommon))
		}

		table.Rows = append(table.Rows, row)
		details.Items = append(details.Items, item)
	}

	for _, f := range r.Risks {
		risks.Items = append(risks.Items, Item{Of: f.Members, Words: f.Wrong, Lines: []string{"-> " + f.Do}})
	}

	for _, f := range r.Unread {
		item := Item{Of: f.Members, Words: f.Wrong}
		if f.Detail != "" {
			item.Lines = []string{f.Detail}
		}

		unread.Items = append(unread.Items, item)
	}

	if r.NotCompared != nil {
		limits.Items = append(limits.Items, Item{Words: "not compared, because nearly every node has its own value, or only some versions have " +
			"the field: " + printable.Few(r.NotCompared)})
	}

	return []Section{table, details, risks, unread, limits}
}

// few returns values with their numbers, the most frequent first, such as "gpu
// (9)", and a single value alone.
func few(counts map[string]int) string {
	var out []string
	for _, value := range printable.MostFirst(counts) {
		words := value
		if len(counts) > 1 {
			words = fmt.Sprintf("%s (%d)", cmp.Or(value, "-"), counts[value])
		}

		out = append(out, words)
	}

	const most = 4

	return printable.First(out, most, ", ")
}
