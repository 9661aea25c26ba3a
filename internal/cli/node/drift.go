// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// driftRows are the columns and notes of `nodes --drift`.
type driftRows struct {
	agents      int            // of all nodes, with drift and without
	silent      int            // agents that report no comparison
	filesOnly   int            // nodes whose /configz is not compared
	notCompared map[string]int // why, with the number of nodes
}

// count counts a node, and reports whether it has drifted.
func (r *driftRows) count(row describe.Row) bool {
	if row.AgentVersion == "" {
		return false
	}
	r.agents++
	switch d := row.Drift; {
	case d == nil:
		r.silent++
	case d.NotCompared != "":
		r.filesOnly++
		r.notCompared[d.NotCompared]++
	}
	return row.Drift.Drifted()
}

func (r *driftRows) header(format printing.Format) []string {
	out := []string{"NAME", "DRIFT", "SINCE", "DIFFERS"}
	if format == printing.Wide {
		out = append(out, "ACTIVE", "KUBELET", "AGENT", "NOT-COMPARED")
	}
	return out
}

func (r *driftRows) cells(row describe.Row, format printing.Format) []string {
	const few = 3
	d := row.Drift
	out := []string{row.Name, d.Reason, describe.Age(*d.Since, time.Now()), d.Differs(few)}
	if format == printing.Wide {
		out[3] = d.Differs(math.MaxInt)
		out = append(out, row.Active, row.ComponentVersion, row.AgentVersion, d.NotCompared)
	}
	return out
}

// notes prints what the list does not show: n is the number of its nodes.
func (r *driftRows) notes(w io.Writer, n int) {
	if n == 0 {
		fmt.Fprintf(w, "No drift reported: %s compared\n", printable.Count(r.agents-r.silent, "node"))
	}
	if r.silent > 0 {
		fmt.Fprintf(w, "note: agents that do not report drift: %d of %d; they are older, or started their kubelet seconds ago\n", r.silent,
			r.agents)
	}
	if r.filesOnly > 0 {
		words := fmt.Sprintf("note: on %d of %s, only files are compared: ", r.filesOnly, printable.Count(r.agents, "node"))
		why := printable.MostFirst(r.notCompared)
		if words += why[0]; len(why) > 1 {
			words += "; -o json lists other causes"
		}
		fmt.Fprintln(w, printable.Line(words))
	}
}
