// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Effect is what a rollout does to its nodes from now on, if all of them are
// healthy and nobody pauses it. Commands and buttons show it with a change of
// the rollout.
type Effect struct {
	Moves []Group // nodes that change their configuration, the largest group first
	Stays []Group // nodes that do not
	// Failed says how the new target's content failed before: rolling it out
	// again needs force. Empty: it did not fail, or it is the target already.
	Failed  string
	Back    *Effect // what a rollback would do, after an abort without one; otherwise nil
	Drains  string  // which nodes are drained; empty: none
	Restart *describe.RestartCost

	fleet *query.Fleet
}

// Group is a number of nodes with one configuration before and after.
type Group struct {
	From, To string // as they are named in the rollout
	Nodes    int

	from, to string // sha256; empty: the local configuration
}

// String describes what the nodes do.
func (g Group) String() string {
	do := printable.Verb(g.Nodes, "goes", "go") + " from " + g.From + " to " + g.To
	if g.from == g.to {
		do = printable.Verb(g.Nodes, "keeps", "keep") + " " + g.From
	}

	return printable.Line(printable.Count(g.Nodes, "node") + " " + do)
}

// Foresee returns the effect of a rollout with this spec, which does not have
// to be stored.
func Foresee(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout) (*Effect, error) {
	f, err := query.Gather(ctx, c, r, nil)
	if err != nil {
		return nil, err
	}
	if f.Input.Invalid != "" {
		return nil, fmt.Errorf("rollout %s is invalid: %s", r.Name, f.Input.Invalid)
	}

	e := EffectOn(ctx, f)
	if a := f.Input.Spec.Abort; a != nil && !a.Rollback && a.Revision == f.Input.Target.Number {
		f.Input.Spec.Abort = &v1alpha1.RolloutAbort{Revision: a.Revision, Rollback: true}
		e.Back = EffectOn(ctx, f)
	}

	return e, ctx.Err()
}

// Patience is how long an emergency waits for its effect: reading a large fleet
// takes longer than a person in need can wait.
var Patience = 5 * time.Second

// EditAndTell is EditObserved whose message also says what happens to the
// nodes, or why that is not known. It writes first.
func EditAndTell(ctx context.Context, c client.Client, name string, revision int64, change Change) (string, error) {
	var written *v1alpha1.NodeConfigRollout
	words, err := EditObserved(ctx, c, name, revision, func(r *v1alpha1.NodeConfigRollout) (string, error) {
		before := r.DeepCopy()
		words, err := change(r)
		if written = nil; !equality.Semantic.DeepEqual(before.Spec, r.Spec) {
			written = r
		}

		return words, err
	})
	if err != nil || written == nil {
		return words, err
	}

	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	e, unknown := Foresee(ctx, c, written)
	if unknown != nil {
		return printable.Line(words + "; " + Unknown(unknown)), nil
	}
	if words += "; "; written.Spec.Paused || written.Spec.Frozen {
		words += "afterwards "
	}

	return printable.Line(words + strings.Join(e.Lines(), "; ")), nil
}

// Unknown says that the effect of a change is not known, and why.
func Unknown(why error) string { return "cannot tell which nodes change: " + why.Error() }

// EffectOn is Foresee for the fleet of a valid rollout that has been read. It
// plays the rollout without what only delays it: steps, budgets, windows,
// gates, a pause and a freeze.
func EffectOn(ctx context.Context, f *query.Fleet) *Effect {
	e, p := &Effect{fleet: f}, f.Input
	if u := p.Status.UpdateRevision; u == nil || p.Target.Number != u.Number {
		e.Failed = p.TargetFailed
	}

	all, s := intstr.FromString("100%"), &p.Spec
	p.Windows, p.RespectBudgets, s.Paused, s.Frozen, s.Rollback.MaxUnavailable = nil, false, false, false, &all
	s.Strategy = v1alpha1.RolloutStrategy{MaxUnavailable: &all, MaxJoining: s.Strategy.MaxJoining, Drain: s.Strategy.Drain,
		DrainOptions: s.Strategy.DrainOptions}
	run := rollout.Simulate(p, f.Nodes, rollout.Model{
		TakeUp: min(query.AnswerTime, p.Controller.AgentTimeout.Duration/2), Trial: time.Minute, Drain: f.DrainTime(), Approve: true,
		Limit:       24 * time.Hour,
		Interrupted: func() bool { return ctx.Err() != nil },
	})
	groups := map[Group]int{}
	var restarts []fleet.Restart
	toTarget := 0
	for i, s := range run.Final.States {
		was, is := &f.Nodes[i], &run.Nodes[i]
		if s == rollout.Conflicted || s == rollout.Manual || was.OtherSource != "" || !was.Reported {
			continue
		}

		g := Group{From: p.RunsName(was), To: p.RunsName(is), from: was.Active.Digest(), to: is.Active.Digest()}
		if c, known := p.Contents[g.to]; g.from == g.to && g.to == p.Target.ConfigMapRef.SHA256 && known && c.Number != p.Target.Number {
			g.From = fmt.Sprintf("revision %d, which becomes revision %d", c.Number, p.Target.Number)
		}

		groups[g]++
		if g.from == g.to {
			continue
		}

		restarts = append(restarts, f.Restarts[i])
		if g.to == p.Target.ConfigMapRef.SHA256 {
			toTarget++
		}
	}

	for g, n := range groups {
		g.Nodes = n
		if g.from == g.to {
			e.Stays = append(e.Stays, g)
		} else {
			e.Moves = append(e.Moves, g)
		}
	}

	for _, all := range [][]Group{e.Moves, e.Stays} {
		slices.SortFunc(all, func(a, b Group) int {
			return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.From, b.From), strings.Compare(a.To, b.To))
		})
	}

	e.Restart = describe.RestartCostOf(restarts)
	switch {
	case toTarget == 0:
	case s.Strategy.Drain == v1alpha1.DrainAlways:
		e.Drains = printable.Count(toTarget, "node") + " are drained first"
	case rollout.Drains(s):
		e.Drains = "nodes that refuse the revision because of their pods are drained"
	}

	return e
}

// Words are the moves in one sentence: 26 nodes go from revision 2 to revision
// 1, 23 from ... to the local configuration.
func (e *Effect) Words() string {
	var words []string
	for _, g := range append(slices.Clone(e.Moves), e.Stays...) {
		words = append(words, g.String())
	}

	return cmp.Or(strings.Join(words, ", "), "no node changes")
}

// Lines are the sentences of a confirmation, without the fields that differ.
func (e *Effect) Lines() []string {
	lines := []string{e.Words()}
	if e.Failed != "" {
		lines = append(lines, "this configuration failed before: "+e.Failed)
	}
	if e.Back != nil && len(e.Back.Moves) > 0 {
		lines = append(lines, "rolled back, "+e.Back.Words())
	}

	for _, words := range []string{e.Drains, e.Restart.String()} {
		if words != "" {
			lines = append(lines, words)
		}
	}

	return lines
}

// Diff returns the fields that differ for a group, one line for each, as
// describe.ContentDiff.
func (e *Effect) Diff(ctx context.Context, c client.Reader, g Group) (string, error) {
	before, err := e.fleet.Content(ctx, c, g.from)
	if err != nil {
		return "", err
	}

	after, err := e.fleet.Content(ctx, c, g.to)
	if err != nil {
		return "", err
	}

	return describe.ContentDiff(before, after, describe.LocalOfEach), nil
}
