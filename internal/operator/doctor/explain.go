// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// checkInstallation is the check of the finding about the installation as a
// whole.
const checkInstallation = "installation"

// installed returns one finding about an installation of which several objects
// are missing: one command creates them all. ok is false if there is nothing to
// say about the whole.
func installed(f *Facts, found []Finding) (whole Finding, ok bool) {
	var missing []string
	errors, do := 0, applyAPI
	for _, one := range found {
		if one.missing == "" {
			continue
		}

		missing = append(missing, one.missing)
		if one.Severity == Error {
			errors++
		}
		if one.Do == applyAll {
			do = applyAll
		}
	}

	if errors < 2 {
		return Finding{}, false
	}

	readable, exist := 0, 0
	for i := range f.Parts {
		p := &f.Parts[i]
		if p.Denied {
			continue
		}

		readable++
		if p.Got != nil {
			exist++
		}
	}

	whole = Finding{Severity: Error, Check: checkInstallation, Object: "evenkeel", Do: do}
	if exist == 0 {
		whole.Wrong, whole.Do, whole.absent = fmt.Sprintf("is not installed: none of its %d objects exists", readable), applyAll, true
	} else {
		whole.Wrong = fmt.Sprintf("is installed incompletely: %d of its %d objects are missing (%s)", len(missing), readable, firstFew(missing))
	}

	return whole, true
}

// number sets the IDs.
func number(found []Finding) {
	seen := map[string]int{}
	for i := range found {
		f := &found[i]
		f.ID = f.Check
		if seen[f.Check]++; seen[f.Check] > 1 {
			f.ID = fmt.Sprintf("%s-%d", f.Check, seen[f.Check])
		}
	}
}

// explanations say which findings follow from which. None of them hides an
// error behind something less severe, and no finding explains one that could
// explain it.
var explanations = []struct {
	why      string
	explains func(cause, effect *Finding, all []Finding) bool
}{
	{"one command creates the whole installation", func(cause, effect *Finding, _ []Finding) bool {
		return cause.Check == checkInstallation && effect.missing != ""
	}},
	{"nothing of evenkeel runs in a cluster without it", func(cause, effect *Finding, _ []Finding) bool {
		return cause.absent && slices.Contains([]string{"api", "controller-rights", "controller", "no-agent"}, effect.Check)
	}},
	{"a controller needs the API, its namespace and its permissions", func(cause, effect *Finding, all []Finding) bool {
		return cause.Check == checkInstallation && effect.Check == "controller" && slices.ContainsFunc(all, func(f Finding) bool {
			return f.Severity == Error && f.missing != "" &&
				(f.Check == "controller-rights" || strings.HasPrefix(f.missing, "CustomResourceDefinition ") ||
					strings.HasPrefix(f.missing, "Namespace "))
		})
	}},
	{"an agent needs the role of nodes to report", func(cause, effect *Finding, all []Finding) bool {
		return cause.Check == checkInstallation && effect.Check == "no-agent" && slices.ContainsFunc(all, func(f Finding) bool {
			return f.missing == "ClusterRole evenkeel-node" || f.missing == "ClusterRoleBinding evenkeel-node"
		})
	}},
	{"the controller deletes NodeConfigs without a Node", func(cause, effect *Finding, _ []Finding) bool {
		return cause.Check == "controller" && cause.Severity == Error && effect.Check == "left-over"
	}},
	{"a node cannot read a ConfigMap that does not exist", func(cause, effect *Finding, _ []Finding) bool {
		return cause.Check == "sources" && effect.Check == "unclear" && covers(cause, effect) &&
			!slices.ContainsFunc(effect.nodes, func(n *Node) bool { return n.Reason != v1alpha1.ReasonSyncFailed })
	}},
	{"a node whose install failed has no agent", func(cause, effect *Finding, _ []Finding) bool {
		return cause.Check == "install" && effect.Check == "no-agent" && covers(cause, effect)
	}},
}

// covers reports whether a finding is about all nodes of another one.
func covers(cause, effect *Finding) bool {
	return len(effect.nodes) > 0 && !slices.ContainsFunc(effect.nodes, func(n *Node) bool { return !slices.Contains(cause.nodes, n) })
}

// explain sets ExplainedBy.
func explain(found []Finding) {
	for i := range found {
		effect := &found[i]
		for _, e := range explanations {
			at := slices.IndexFunc(found, func(cause Finding) bool {
				return cause.ID != effect.ID && slices.Index(severities, cause.Severity) <= slices.Index(severities, effect.Severity) &&
					e.explains(&cause, effect, found)
			})
			if at >= 0 {
				effect.ExplainedBy = found[at].ID
				break
			}
		}
	}
}
