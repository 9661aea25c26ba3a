// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Level says whether a person is needed.
type Level string

// The levels, the most urgent first.
const (
	LevelProblem Level = "problem" // something does not work, and does not repair itself
	LevelNotice  Level = "notice"  // a person is expected or was asked to act
	LevelOK      Level = "ok"
)

// summaryLine is one statement about a cluster.
type summaryLine struct {
	Level  Level  `json:"level"`
	Reason string `json:"reason"` // in CamelCase, for metrics
	Count  int    `json:"count"`
	Words  string `json:"words"` // with the count
	Object string `json:"-"`     // the name of the rollout, or of the first of them; empty: it is about something else
	Next   string `json:"next,omitempty"`
	// Filter leads to what was counted on the page: rollouts/NAME or
	// ?health=Failed. Empty: everything.
	Filter string `json:"filter"`
}

// Summary says what matters in a cluster, the most urgent first.
type Summary []summaryLine

// Level returns the most urgent level.
func (s Summary) Level() Level {
	if len(s) == 0 {
		return LevelOK
	}

	return s[0].Level
}

// Words returns the words of the lines of a level.
func (s Summary) Words(l Level) (words []string) {
	for _, line := range s {
		if line.Level == l {
			words = append(words, line.Words)
		}
	}

	return words
}

// nodeKind is all of a node's standing that a summary depends on.
type nodeKind struct {
	Health   Health
	Position Position
	// Agentless nodes should have an agent: a rollout selects them, and they
	// are not new.
	Agentless bool
	// Excuse is the level of a node that need not be Ready: OK for a new one, a
	// notice under maintenance. Empty: it must be Ready.
	Excuse Level
}

// Kind returns how a summary counts a node.
func (s Standing) Kind() nodeKind {
	k := nodeKind{Health: s.Health, Position: s.Position, Agentless: s.Health == HealthNoAgent && !s.New && s.Position != ""}
	switch {
	case s.Health != HealthNotReady:
	case s.Maintained:
		k.Excuse = LevelNotice
	case s.New:
		k.Excuse = LevelOK
	}

	return k
}

// Level returns how urgently a node needs a person.
func (k nodeKind) Level() Level {
	for _, reason := range nodeReasons {
		if reason.is(k) {
			return reason.level
		}
	}

	return LevelOK
}

// Situation is all that the summary of a cluster depends on.
type Situation struct {
	Unanswered bool     // the API server does not answer: everything else is old
	Unread     []string // kinds that cannot be read
	NoLeader   string   // why no controller leads; empty: one leads, or nobody knows
	Rollouts   []v1alpha1.NodeConfigRollout
	Nodes      map[nodeKind]int
	Orphans    int          // NodeConfigs without a Node
	Healths    []NodeHealth // of the nodes, to find failures that show later
}

// Add counts a node. A NodeConfig without a Node is none, and counts by itself.
func (s *Situation) Add(p fleet.Pair, standing Standing, maintenance []string, now time.Time) {
	if p.Node == nil && !p.NodeUnread {
		s.Orphans++
		return
	}

	if s.Nodes == nil {
		s.Nodes = map[nodeKind]int{}
	}

	standing.Maintained = p.Node != nil && fleet.MaintenanceOf(p.Node, maintenance) != ""
	s.Nodes[standing.Kind()]++
	if h, ok := nodeHealthOf(p, maintenance, now); ok {
		s.Healths = append(s.Healths, h)
	}
}

// SummaryOf returns what matters in a cluster. The commands, the page and the
// metric take their words and numbers from here.
func SummaryOf(s Situation) Summary {
	var out Summary
	add := func(l summaryLine) {
		if l.Level == LevelOK {
			l.Next = ""
		}
		if l.Count > 0 {
			out = append(out, l)
		}
	}
	if s.Unanswered {
		add(summaryLine{Level: LevelProblem, Reason: "APIServerAway", Count: 1, Words: "the API server does not answer"})
	}

	add(summaryLine{Level: LevelProblem, Reason: "CannotRead", Count: len(s.Unread), Words: "cannot read " + strings.Join(s.Unread, ", ")})
	if s.NoLeader != "" {
		add(summaryLine{Level: LevelProblem, Reason: "NoController", Count: 1, Words: s.NoLeader, Next: "kubectl evenkeel doctor"})
	}

	for _, x := range suspicions(s.Healths, s.Rollouts) {
		add(x.line(s.Rollouts))
	}

	for _, reason := range rolloutReasons {
		n, first := 0, ""
		for i := range s.Rollouts {
			if r := &s.Rollouts[i]; slices.Contains(reasonsOf(r), reason.name) {
				n, first = n+1, cmp.Or(first, r.Name)
			}
		}

		add(summaryLine{reason.level, "Rollouts" + OrUnknown(v1alpha1.RolloutPhase(reason.name)), n,
			printable.Count(n, "rollout") + " " + reason.words, first,
			"kubectl evenkeel rollout status " + first, "rollouts/" + first})
	}

	for _, reason := range nodeReasons {
		n := 0
		for kind, count := range s.Nodes {
			if reason.is(kind) {
				n += count
			}
		}

		add(summaryLine{Level: reason.level, Reason: "Nodes" + reason.name, Count: n, Words: printable.Count(n, "node") + " " + reason.words,
			Next: "kubectl evenkeel nodes --problems", Filter: reason.filter})
	}

	add(summaryLine{Level: LevelOK, Reason: ReasonOrphans, Count: s.Orphans,
		Words: fmt.Sprintf("%s %s no Node", printable.Count(s.Orphans, "NodeConfig"), printable.Verb(s.Orphans, "has", "have"))})
	slices.SortStableFunc(out, func(a, b summaryLine) int { return slices.Index(levels, a.Level) - slices.Index(levels, b.Level) })

	return out
}

var levels = []Level{LevelProblem, LevelNotice, LevelOK}

// Reasons for which a rollout appears in a summary, beside its phase.
const (
	ReasonRollingBackFrozen = "RollingBackFrozen"
	reasonFrozenMidway      = "FrozenMidway"
	reasonDegraded          = v1alpha1.ConditionDegraded

	reasonUnknownPhase = "InUnknownPhase" // of a later version

	ReasonSuspected = "RevisionSuspected"      // of a revision
	ReasonOrphans   = "NodeConfigsWithoutNode" // of NodeConfigs
)

// rolloutReasons are all reasons of rollouts, the most urgent first. The others
// are phases.
var rolloutReasons = []struct {
	name  string
	level Level
	words string
}{
	{string(v1alpha1.RolloutHalted), LevelProblem, "halted"},
	{ReasonRollingBackFrozen, LevelProblem, "frozen while rolling back"},
	{string(v1alpha1.RolloutRollingBack), LevelProblem, "rolling back"},
	{string(v1alpha1.RolloutRolledBack), LevelProblem, "rolled back"},
	{string(v1alpha1.RolloutStuck), LevelProblem, "stuck"},
	{string(v1alpha1.RolloutInvalid), LevelProblem, "invalid"},
	{reasonFrozenMidway, LevelProblem, "frozen before the end"},
	{reasonDegraded, LevelProblem, "degraded"},
	{string(v1alpha1.RolloutAwaitingApproval), LevelNotice, "waiting for approval"},
	{string(v1alpha1.RolloutPaused), LevelNotice, "paused"},
	{string(v1alpha1.RolloutFrozen), LevelNotice, "frozen"},
	{string(v1alpha1.RolloutNoNodes), LevelNotice, "without nodes"},
	{reasonUnknownPhase, LevelNotice, "in an unknown phase"},
	{"", LevelNotice, "not seen by a controller yet"},
	{string(v1alpha1.RolloutProgressing), LevelOK, "in progress"},
	{string(v1alpha1.RolloutComplete), LevelOK, "complete"},
}

// reasonsOf returns the reasons for which a rollout appears in a summary, the
// most urgent first.
func reasonsOf(r *v1alpha1.NodeConfigRollout) []string {
	phase, n := r.Status.Phase, &r.Status.Nodes
	switch {
	case phase == v1alpha1.RolloutRollingBack && r.Spec.Frozen:
		return []string{ReasonRollingBackFrozen}
	case Stopped(phase):
		return []string{string(phase)}
	case phase == v1alpha1.RolloutFrozen && n.Pending+n.Assigned+n.Trial+n.Soaking+n.Draining+n.Blocked > 0:
		return []string{reasonFrozenMidway}
	case phase == v1alpha1.RolloutWaiting:
		phase = v1alpha1.RolloutProgressing
	}

	var out []string
	if meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionDegraded) {
		out = append(out, reasonDegraded)
	}

	for _, known := range rolloutReasons {
		if known.name == string(phase) {
			return append(out, string(phase))
		}
	}

	return append(out, reasonUnknownPhase)
}

// Urgency says how urgently a rollout needs a person.
type Urgency struct {
	Rank   int // 0: the most urgent
	Level  Level
	Reason string
}

// UrgencyOf returns the urgency of a rollout.
func UrgencyOf(r *v1alpha1.NodeConfigRollout) Urgency {
	first := reasonsOf(r)[0]
	for i, reason := range rolloutReasons {
		if reason.name == first {
			return Urgency{i, reason.level, first}
		}
	}

	return Urgency{len(rolloutReasons), LevelNotice, first} // no other reason exists
}

// nodeReasons are all reasons of nodes, the most urgent first. Every node
// counts for one of those with a health, and the numbers are those of the
// healths in the map's legend.
var nodeReasons = []struct {
	name          string
	level         Level
	words, filter string
	is            func(nodeKind) bool
}{
	{"Failed", LevelProblem, "failed", "?health=Failed", healthIs(HealthFailed)},
	{string(HealthNotReady), LevelProblem, "not Ready", "?health=NotReady", notReady("")},
	{"Unknown", LevelProblem, "unknown", "?health=Unknown", healthIs(HealthUnknown)},
	{"WithoutAgent", LevelProblem, "without an agent", "?health=NoAgent", func(k nodeKind) bool { return k.Agentless }},
	{"Blocked", LevelNotice, "blocked", "?position=Blocked", func(k nodeKind) bool { return k.Position == PositionBlocked }},
	{"NotReadyMaintained", LevelNotice, "not Ready under maintenance", "?health=NotReady", notReady(LevelNotice)},
	{"OnTrial", LevelOK, "on trial", "?health=OnTrial", healthIs(HealthOnTrial)},
	{"Healthy", LevelOK, "healthy", "?health=Healthy", healthIs(HealthHealthy)},
	{"NotReadyNew", LevelOK, "not Ready yet", "?health=NotReady", notReady(LevelOK)},
	{"NoAgent", LevelOK, "without an agent", "?health=NoAgent", func(k nodeKind) bool { return k.Health == HealthNoAgent && !k.Agentless }},
	{"OptedOut", LevelOK, "opted out", "?health=OptedOut", healthIs(HealthOptedOut)},
}

func notReady(excuse Level) func(nodeKind) bool {
	return func(k nodeKind) bool { return k.Health == HealthNotReady && k.Excuse == excuse }
}

func healthIs(h Health) func(nodeKind) bool { return func(k nodeKind) bool { return k.Health == h } }
