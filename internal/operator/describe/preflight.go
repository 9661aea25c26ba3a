// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Preflight returns the answers of nodes that were asked about a configuration, one line for each group. A group of nodes that
// refuse for the same reason has the message of the first node.
func Preflight(r *v1alpha1.PreflightResult) []string {
	var out []string
	add := func(n int32, one, many string, names []string, groups func(g *v1alpha1.PreflightGroup) bool) {
		if n == 0 && one != "accepts" {
			return
		}
		line := nodesThat(n, one, many)
		if len(names) > 0 {
			line += ": " + namesOf(names, n)
		}
		out = append(out, line)
		for i := range r.Groups {
			if g := &r.Groups[i]; groups != nil && groups(g) {
				head := strings.TrimSuffix(fmt.Sprintf("%s %s", number(g.Nodes), g.Reason), " ")
				out = append(out, "  "+printable.Line(JoinWords(fmt.Sprintf("%s (%s)", head, namesOf(g.Examples, g.Nodes)), g.Message)))
			}
		}
	}
	more := r.Accepted
	add(r.Accepted, "accepts", "accept", nil, func(g *v1alpha1.PreflightGroup) bool {
		if g.Verdict != v1alpha1.PreflightAccepted {
			return false
		}
		more -= g.Nodes
		return true
	})
	if more > 0 && len(r.Groups) >= rollout.MaxPreflightGroups { // the others are not listed
		out = append(out, fmt.Sprintf("  and %s, with other changes", printable.Count(more, "more node")))
	}
	add(r.Refused, "refuses", "refuse", nil, func(g *v1alpha1.PreflightGroup) bool {
		return g.Verdict == v1alpha1.PreflightRefused && !AboutPods(g.Reason)
	})
	add(r.Blocked, "refuses because of its pods", "refuse because of their pods", nil, func(g *v1alpha1.PreflightGroup) bool {
		return g.Verdict == v1alpha1.PreflightRefused && AboutPods(g.Reason)
	})
	add(r.Unknown, "cannot tell", "cannot tell", nil,
		func(g *v1alpha1.PreflightGroup) bool { return g.Verdict == v1alpha1.PreflightUnknown })
	add(r.Unanswered, "did not answer", "did not answer", r.UnansweredNodes, nil)
	return out
}

// PreflightLine returns the counts of the answers in one line.
func PreflightLine(r *v1alpha1.PreflightResult) string {
	var out []string
	for _, x := range []struct {
		n    int32
		what string
	}{
		{r.Accepted, "accepted"}, {r.Refused, "refused"}, {r.Blocked, "blocked by pods"}, {r.Unknown, "cannot tell"},
		{r.Unanswered, "unanswered"},
	} {
		if x.n > 0 || x.what == "accepted" {
			out = append(out, number(x.n)+" "+x.what)
		}
	}
	return strings.Join(out, ", ")
}

// AboutPods reports whether a reason of a refusal is one of the pod guard.
func AboutPods(reason string) bool {
	return reason == v1alpha1.ReasonWouldEvictPods || reason == v1alpha1.ReasonRestartWouldEvictPods || reason == v1alpha1.ReasonNeedsDrain
}

func nodesThat(n int32, one, many string) string {
	if n == 1 {
		return "1 node " + one
	}
	return number(n) + " nodes " + many
}

// number formats a number with commas between thousands.
func number(n int32) string {
	s := strconv.Itoa(int(n))
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// namesOf joins the names of the first of n nodes.
func namesOf(first []string, n int32) string {
	names := printable.Line(strings.Join(first, ", "))
	if int(n) > len(first) {
		names += ", ..."
	}
	return names
}
