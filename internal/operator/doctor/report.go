// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Report is what "doctor" prints.
type Report struct {
	Headline string         `json:"headline"` // one line, without a full stop
	Level    describe.Level `json:"level"`    // a problem also if there are errors or warnings
	Nodes    int            `json:"nodes"`
	Agents   int            `json:"agents"` // nodes whose agent has ever reported
	Rollouts int            `json:"rollouts"`
	Findings []Finding      `json:"findings"`
}

// NewReport returns the report about these facts.
func NewReport(f *Facts) Report {
	r := Report{Nodes: len(f.Nodes), Rollouts: len(f.Rollouts), Findings: Judge(f)}
	for i := range f.Nodes {
		if f.Nodes[i].Reported {
			r.Agents++
		}
	}

	if r.Findings == nil {
		r.Findings = []Finding{}
	}

	summary := summaryOf(f, r.Findings)
	r.Headline, r.Level = headline(f, r.Findings, summary), summary.Level()
	if r.Count(Error)+r.Count(Warning) > 0 {
		r.Level = describe.LevelProblem
	}

	return r
}

// Count returns the number of findings of a severity.
func (r Report) Count(s Severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}

	return n
}

// headline returns the report in one line: what is wrong, the most important
// first.
func headline(f *Facts, found []Finding, summary describe.Summary) string {
	if slices.ContainsFunc(found, func(f Finding) bool { return f.absent }) {
		return "evenkeel is not installed in this cluster"
	}

	words := append(aboutInstallation(found), summary.Words(describe.LevelProblem)...)
	if n := others(f, found); n > 0 && len(words) > 0 {
		words = append(words, printable.Count(n, "more problem"))
	} else if n > 0 {
		words = append(words, printable.Count(n, "problem"))
	}

	incomplete := slices.ContainsFunc(found, func(f Finding) bool { return f.Severity == Unknown })
	switch {
	case len(words) == 0 && incomplete && nothingRead(f):
		return "nothing could be checked: you are not allowed to read evenkeel's objects"
	case len(words) == 0 && incomplete:
		words = append(words, "no problems in what could be checked")
	case len(words) == 0:
		words = append(words, "no problems")
	case incomplete:
		words = append(words, "not everything could be checked")
	}

	return strings.Join(append(words, summary.Words(describe.LevelNotice)...), ", ")
}

// summaryOf returns what matters in the cluster, apart from the installation.
func summaryOf(f *Facts, found []Finding) describe.Summary {
	s := f.Situation
	s.Rollouts = f.Rollouts
	if slices.ContainsFunc(found, func(f Finding) bool { return f.Check == "controller" && f.Severity == Error && f.ExplainedBy == "" }) {
		s.NoLeader = "no controller runs"
	}

	return describe.SummaryOf(s)
}

// aboutInstallation returns what a headline says about the manifests.
func aboutInstallation(found []Finding) []string {
	var words []string
	differ := 0
	for _, f := range found {
		switch {
		case f.ExplainedBy != "" || f.Severity != Error:
		case f.Check == checkInstallation:
			words = append(words, "evenkeel is installed incompletely")
		case f.Check == "api" || f.Check == "controller-rights":
			differ++
		}
	}

	if differ > 0 {
		words = append(words, fmt.Sprintf("%s of the installation %s missing or outdated", printable.Count(differ, "object"),
			printable.Verb(differ, "is", "are")))
	}

	return words
}

// counted reports whether a headline counts a node among the problems.
func (n *Node) counted() bool { return n.Standing.Kind().Level() == describe.LevelProblem }

// others counts the errors and warnings that the rest of a headline does not
// mention.
func others(f *Facts, found []Finding) int {
	n := 0
	for _, one := range found {
		mentioned := one.ExplainedBy != "" || slices.Contains([]string{checkInstallation, "later"}, one.Check) ||
			one.Check == "rollouts" && inTrouble(f, one) ||
			one.Severity == Error && slices.Contains([]string{"api", "controller-rights", "controller"}, one.Check) ||
			len(one.nodes) > 0 && !slices.ContainsFunc(one.nodes, func(n *Node) bool { return !n.counted() })
		if (one.Severity == Error || one.Severity == Warning) && !mentioned {
			n++
		}
	}

	return n
}

// inTrouble reports whether a finding is about a rollout that the headline
// counts among the problems.
func inTrouble(f *Facts, about Finding) bool {
	return slices.ContainsFunc(f.Rollouts, func(r v1alpha1.NodeConfigRollout) bool {
		return about.Object == objectOf(&r) && describe.UrgencyOf(&r).Level == describe.LevelProblem
	})
}

// objectOf names a rollout.
func objectOf(r *v1alpha1.NodeConfigRollout) string { return "NodeConfigRollout " + r.Name }

// nothingRead reports whether the user may not read any object that doctor
// looks at.
func nothingRead(f *Facts) bool {
	return f.Lease.Denied && !f.HasConfig && len(f.Nodes) == 0 && len(f.Rollouts) == 0 &&
		!slices.ContainsFunc(f.Parts, func(p Part) bool { return !p.Denied })
}
