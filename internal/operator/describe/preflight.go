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

// Preflight returns the answers of nodes that were asked about a configuration,
// one line for each group. A group of nodes that refuse for the same reason has
// the message of the first node.
func Preflight(r *v1alpha1.PreflightResult) []string {
	var out []string
	for _, answer := range []struct {
		n         int32
		one, many string
		verdict   v1alpha1.PreflightVerdict // of the groups; empty: there are none
		pods      bool                      // a refusal because of them
		names     []string
	}{
		{r.Accepted, "accepts", "accept", v1alpha1.PreflightAccepted, false, nil},
		{r.Refused, "refuses", "refuse", v1alpha1.PreflightRefused, false, nil},
		{r.Blocked, "refuses because of its pods", "refuse because of their pods", v1alpha1.PreflightRefused, true, nil},
		{r.Unknown, "cannot tell", "cannot tell", v1alpha1.PreflightUnknown, false, nil},
		{r.Unanswered, "did not answer", "did not answer", "", false, r.UnansweredNodes},
	} {
		accepted := answer.verdict == v1alpha1.PreflightAccepted
		if answer.n == 0 && !accepted {
			continue
		}

		line := number(answer.n) + " " + printable.Verb(int(answer.n), "node "+answer.one, "nodes "+answer.many)
		if len(answer.names) > 0 {
			line += ": " + namesOf(answer.names, answer.n)
		}

		out = append(out, line)
		more := answer.n
		for _, g := range r.Groups {
			if g.Verdict == answer.verdict && (g.Verdict != v1alpha1.PreflightRefused || AboutPods(g.Reason) == answer.pods) {
				more -= g.Nodes
				head := strings.TrimSuffix(fmt.Sprintf("%s %s", number(g.Nodes), g.Reason), " ")
				out = append(out, "  "+printable.Line(JoinWords(fmt.Sprintf("%s (%s)", head, namesOf(g.Examples, g.Nodes)), g.Message)))
			}
		}

		if accepted && more > 0 && len(r.Groups) >= rollout.MaxPreflightGroups { // the others are not listed
			out = append(out, fmt.Sprintf("  and %s, with other changes", printable.Count(more, "more node")))
		}
	}

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
