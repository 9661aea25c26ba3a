package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Report is what "doctor" prints.
type Report struct {
	Headline string    `json:"headline"` // one line, without a full stop
	Nodes    int       `json:"nodes"`
	Agents   int       `json:"agents"` // nodes whose agent has reported
	Rollouts int       `json:"rollouts"`
	Findings []Finding `json:"findings"`
}

// NewReport returns the report about these facts.
func NewReport(f *Facts) Report {
	r := Report{Rollouts: len(f.Rollouts), Findings: Judge(f)}
	for i := range f.Nodes {
		if f.Nodes[i].Exists {
			r.Nodes++
		}
		if f.Nodes[i].Reported {
			r.Agents++
		}
	}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	r.Headline = headline(f, r.Findings)
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

// troubles are the phases in which a rollout needs a person because something is wrong, the most urgent first.
var troubles = []v1alpha1.RolloutPhase{v1alpha1.RolloutHalted, v1alpha1.RolloutStuck, v1alpha1.RolloutRolledBack, v1alpha1.RolloutInvalid}

// headline returns the report in one line: what is wrong, the most important first.
func headline(f *Facts, found []Finding) string {
	if slices.ContainsFunc(found, func(f Finding) bool { return f.absent }) {
		return "evenkeel is not installed in this cluster"
	}
	words := aboutInstallation(found)
	phases := map[v1alpha1.RolloutPhase]int{}
	for i := range f.Rollouts {
		phases[f.Rollouts[i].Status.Phase]++
	}
	for _, p := range troubles {
		if n := phases[p]; n > 0 {
			words = append(words, fmt.Sprintf("%s %s %s", printable.Count(n, "rollout"), are(n), describe.PhaseWords(p)))
		}
	}
	if n := failedNodes(f); n > 0 {
		words = append(words, printable.Count(n, "node")+" failed")
	}
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
	if n := phases[v1alpha1.RolloutAwaitingApproval]; n == 1 {
		words = append(words, "1 rollout awaits approval")
	} else if n > 1 {
		words = append(words, printable.Count(n, "rollout")+" await approval")
	}
	return strings.Join(words, ", ")
}

// aboutInstallation returns what a headline says about the manifests and the controller.
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
		words = append(words, fmt.Sprintf("%s of the installation %s missing or outdated", printable.Count(differ, "object"), are(differ)))
	}
	if slices.ContainsFunc(found, func(f Finding) bool { return f.Check == "controller" && f.Severity == Error && f.ExplainedBy == "" }) {
		words = append(words, "no controller runs")
	}
	return words
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// failed reports whether a node counts as failed in a headline.
func (n *Node) failed() bool { return n.Exists && n.Health == describe.HealthFailed }

func failedNodes(f *Facts) int {
	n := 0
	for i := range f.Nodes {
		if f.Nodes[i].failed() {
			n++
		}
	}
	return n
}

// others counts the errors and warnings that the rest of a headline does not mention.
func others(f *Facts, found []Finding) int {
	n := 0
	for _, one := range found {
		mentioned := one.ExplainedBy != "" || one.Check == checkInstallation || one.Check == "rollouts" && inTrouble(f, one) ||
			one.Severity == Error && slices.Contains([]string{"api", "controller-rights", "controller"}, one.Check) ||
			len(one.nodes) > 0 && !slices.ContainsFunc(one.nodes, func(n *Node) bool { return !n.failed() })
		if (one.Severity == Error || one.Severity == Warning) && !mentioned {
			n++
		}
	}
	return n
}

// inTrouble reports whether a finding is about a rollout whose phase the headline counts.
func inTrouble(f *Facts, about Finding) bool {
	return slices.ContainsFunc(f.Rollouts, func(r v1alpha1.NodeConfigRollout) bool {
		return about.Object == objectOf(&r) && slices.Contains(troubles, r.Status.Phase)
	})
}

// objectOf names a rollout.
func objectOf(r *v1alpha1.NodeConfigRollout) string { return "NodeConfigRollout " + r.Name }

// nothingRead reports whether the user may not read any object that doctor looks at.
func nothingRead(f *Facts) bool {
	return f.Lease.Denied && !f.HasConfig && len(f.Nodes) == 0 && len(f.Rollouts) == 0 && !slices.ContainsFunc(f.Parts, func(p Part) bool { return !p.Denied })
}
