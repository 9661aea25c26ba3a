// Package doctor says what is wrong with an installation of evenkeel and what to do about it. Look gathers facts from the
// API server, Judge decides what they mean.
//
// It must not write anything, nor decide anything that the controller or an agent decides. Judge looks at facts alone.
package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Severity is how bad a finding is.
type Severity string

const (
	Error   Severity = "error"   // something does not work, or is open that should not be
	Warning Severity = "warning" // somebody has to do something, and it can wait
	Unknown Severity = "unknown" // it could not be looked at
	Note    Severity = "note"    // good to know; nobody has to do anything
)

var severities = []Severity{Error, Warning, Unknown, Note}

// Finding is one thing that was found.
type Finding struct {
	Severity Severity `json:"severity"`
	Check    string   `json:"check"`
	Object   string   `json:"object,omitempty"` // its kind and name; empty if it is about nodes
	Nodes    int      `json:"nodes,omitempty"`  // how many it is about
	Names    []string `json:"names,omitempty"`  // the first of them
	Wrong    string   `json:"wrong"`
	Do       string   `json:"do,omitempty"`
}

// About is what a finding is about, in words.
func (f Finding) About() string {
	switch {
	case f.Nodes == 0:
		return f.Object
	case f.Nodes == 1:
		return "node " + f.Names[0]
	case f.Nodes > len(f.Names):
		return fmt.Sprintf("%d nodes (%s, ...)", f.Nodes, strings.Join(f.Names, ", "))
	}
	return fmt.Sprintf("%d nodes (%s)", f.Nodes, strings.Join(f.Names, ", "))
}

// mostNames is how many nodes a finding names.
const mostNames = 3

// of returns a finding about nodes.
func of(severity Severity, nodes []*Node, wrong, do string) Finding {
	f := Finding{Severity: severity, Nodes: len(nodes), Wrong: wrong, Do: do}
	for _, n := range nodes[:min(len(nodes), mostNames)] {
		f.Names = append(f.Names, n.Name)
	}
	return f
}

// checks are all that is judged, in the order in which a person would look: what follows from something that stands above
// it is mended with it.
var checks = []struct {
	name  string
	why   string
	judge func(*Facts) []Finding
}{
	{"rights", "what could not be looked at is not well for that", denied},
	{"api", "without its API, and what guards it, nothing else means anything", api},
	{"controller-rights", "a controller without its rights stands still", controllerRights},
	{"controller", "nothing moves, and nothing is stopped, without a controller", controllerAlive},
	{"dead-end", "a node may have no kubelet that works", deadEnd},
	{"fallen-back", "what was assigned failed there", fallenBack},
	{"refused", "what is assigned is not taken", refused},
	{"unclear", "the node cannot tell what it is to run", unclear},
	{"kubelet", "with this kubelet something is not checked, or not known", limited},
	{"trial", "nothing is promoted as long as a trial lasts", trialStuck},
	{"silent", "an agent that does not answer takes nothing up", silent},
	{"install", "what failed is not tried again by itself, and what was interrupted does not go on", installation},
	{"no-agent", "a rollout passes it over", noAgent},
	{"sources", "a node that comes back without its disk cannot get it any more", sources},
	{"rollouts", "what the controller says for itself", rollouts},
	{"versions", "agents of several versions behave in several ways", versions},
	{"left-over", "a NodeConfig without a Node is nobody's", leftOver},
}

// Judge returns what is to be said of the facts, the worst first.
func Judge(f *Facts) []Finding {
	var out []Finding
	for _, c := range checks {
		for _, finding := range c.judge(f) {
			finding.Check = c.name
			out = append(out, finding)
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	})
	return out
}

// denied says what the user may not look at.
func denied(f *Facts) []Finding {
	var out []Finding
	for _, d := range f.Denied {
		out = append(out, Finding{Severity: Unknown, Object: d.What, Wrong: "you may not look at it: " + d.Why,
			Do: "ask an administrator, who may look at everything here; evenkeel-operator gives the rights for nodes and rollouts"})
	}
	return out
}
