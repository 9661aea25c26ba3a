// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/operator/steer"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// action is a change of a rollout that the page offers, as the command of
// `kubectl evenkeel rollout` with the same name.
type action struct {
	verb    string
	title   string
	means   string // an explanation, in a sentence or two
	command []string
	grave   bool // it cannot simply be undone
	// change is nil for an undo, which depends on more than the rollout. That
	// of a retry is about all nodes, and reads nothing. See carryOut for both.
	change func(reason string) steer.Change
	// reason is whether the rollout shows a reason for the action.
	reason bool
	// observed requires a status for the newest spec.
	observed bool
	// of is the part of the rollout that must not have changed since the user
	// saw it. In an emergency, pausing and aborting must not fail because the
	// rollout has moved to the next step.
	of scope
}

// scope is the part of a rollout that an action refers to.
type scope int

const (
	ofRollout scope = iota
	ofRevision
	ofStep
)

// The verbs of actions.
const (
	verbPause         = "pause"
	verbResume        = "resume"
	verbApprove       = "approve"
	verbApproveFull   = "approve-full"
	verbRetry         = "retry"
	verbUndo          = "undo"
	verbAbort         = "abort"
	verbAbortRollback = "abort-rollback"
)

var actions = []action{
	{verbPause, "Pause", "No further nodes get the revision. Nodes in flight finish, nodes that join get it, and a rollback finishes.",
		[]string{"pause"}, false, steer.Pause, true, false, ofRollout},
	{verbResume, "Resume", "The pause ends. A halt, a freeze, or a missing approval stays.",
		[]string{"resume"}, false, func(string) steer.Change { return steer.Resume }, false, false, ofRevision},
	{verbApprove, "Approve", "The rollout passes its current pause and continues with the next step. Limits and the failure policy still " +
		"apply.",
		[]string{"approve"}, false, func(why string) steer.Change { return steer.Approve(false, why) }, true, true, ofStep},
	{verbApproveFull, "Approve to the end", "The rollout passes this and every later pause. Limits and the failure policy still apply.",
		[]string{"approve", "--full"}, false, func(why string) steer.Change { return steer.Approve(true, why) }, true, true, ofStep},
	{verbRetry, "Retry", "Nodes on which the revision failed try it again, a halt or an abort is lifted, and the rollout continues.",
		[]string{"retry"}, false, func(string) steer.Change {
			return steer.Retry(context.Background(), nil, nil,
				true)
		}, false, true, ofRevision},
	{verbUndo, "Undo", "The last succeeded revision becomes the target again, with the next number, and is rolled out by the same steps, " +
		"without their pauses.",
		[]string{"undo"}, false, nil, false, true, ofRevision},
	{verbAbort, "Abort", "The revision is stopped permanently. Nodes that run it keep it.",
		[]string{"abort"}, true, func(why string) steer.Change { return steer.Abort(false, why) }, true, true, ofRevision},
	{verbAbortRollback, "Abort and roll back", "The revision is stopped permanently, and its nodes return to the last succeeded revision.",
		[]string{"abort", "--rollback"}, true, func(why string) steer.Change { return steer.Abort(true, why) }, true, true, ofRevision},
}

// actionView is an action as the page shows it.
type actionView struct {
	Verb    string `json:"verb"`
	Title   string `json:"title"`
	Means   string `json:"means"`
	Command string `json:"command"`
	Grave   bool   `json:"grave,omitempty"`
	Not     string `json:"not,omitempty"`    // why it is not available; empty: it is
	Reason  bool   `json:"reason,omitempty"` // the page asks for a reason
	Primary bool   `json:"primary,omitempty"`
	Moves   bool   `json:"moves,omitempty"` // nodes change their configuration: the page asks which
}

// offered returns the actions on a rollout.
func (c *cluster) offered(r *v1alpha1.NodeConfigRollout, mayNot string) []actionView {
	var out []actionView
	primary := primaryOf(r)
	for _, a := range actions {
		command := append([]string{"rollout", a.command[0], r.Name}, a.command[1:]...)
		not, means := a.not(r), a.means
		if why := a.forced(r, not); why != "" {
			command = append(command, "--force")
			means += " " + printable.Line(why+".")
		}

		v := actionView{
			Verb: a.verb, Title: a.title, Means: means, Command: c.command(command...), Grave: a.grave, Reason: a.reason, Moves: a.verb != verbPause,
			Not:     cmp.Or(mayNot, not),
			Primary: mayNot == "" && a.verb == primary,
		}
		out = append(out, v)
	}

	return out
}

// forced says why an action needs --force on the command line; empty if it does
// not. The page says so before it carries the action out. not is why the action
// is not available.
func (a *action) forced(r *v1alpha1.NodeConfigRollout, not string) string {
	if a.verb == verbRetry && steer.Stopped(r) != "" {
		return "The revision was stopped: " + steer.Stopped(r)
	}

	if edited := r.DeepCopy(); (a.verb == verbResume || a.command[0] == verbApprove) && not == "" {
		if _, err := a.change("")(edited); err == nil && steer.TargetFailed(edited) != "" {
			return "This configuration failed before: " + steer.TargetFailed(edited)
		}
	}

	return ""
}

// not says why an action on a rollout is not available; empty if it is. It
// tries the action on a copy.
func (a *action) not(r *v1alpha1.NodeConfigRollout) string {
	if a.observed && !query.Observed(r) {
		return query.Unobserved
	}
	if a.observed && r.Status.UpdateRevision == nil {
		return printable.Line(r.Name + " has no revision")
	}

	if a.change == nil {
		if fleet.PreviousRevision(&r.Status) == 0 {
			return printable.Line(fmt.Sprintf("%s has no revision that succeeded before revision %d", r.Name, r.Status.UpdateRevision.Number))
		}

		return ""
	}

	copied := r.DeepCopy()
	switch words, err := a.change("")(copied); {
	case err != nil:
		return printable.Line(r.Name + " " + err.Error())
	case equality.Semantic.DeepEqual(copied.Spec, r.Spec):
		return printable.Line(r.Name + " " + words)
	}

	return ""
}

// primaryOf returns the verb of the action that a person most likely wants;
// empty if there is none that is available. It is never an abort.
func primaryOf(r *v1alpha1.NodeConfigRollout) string {
	if !query.Observed(r) {
		return ""
	}

	var wanted []string
	st := &r.Status
	switch st.Phase {
	case v1alpha1.RolloutHalted, v1alpha1.RolloutRolledBack:
		wanted = []string{verbUndo, verbRetry}
		switch {
		case st.Halt == nil:
		case st.Halt.Reason == v1alpha1.HaltInconclusive: // the revision is not held responsible
			wanted = []string{verbRetry}
		case st.Halt.Reason == v1alpha1.HaltAborted: // a person does not want this revision
			wanted = []string{verbUndo}
		}
	case v1alpha1.RolloutStuck, v1alpha1.RolloutComplete:
		if st.Nodes.Failed > 0 {
			wanted = []string{verbRetry}
		}
	case v1alpha1.RolloutAwaitingApproval:
		wanted = []string{verbApprove}
	case v1alpha1.RolloutPaused:
		wanted = []string{verbResume}
	}

	for _, verb := range wanted {
		if a, err := actionOf(verb); err == nil && a.not(r) == "" {
			return verb
		}
	}

	return ""
}

// actionOf returns the action with a verb.
func actionOf(verb string) (*action, error) {
	for i := range actions {
		if actions[i].verb == verb {
			return &actions[i], nil
		}
	}

	return nil, refusal{http.StatusNotFound, fmt.Errorf("there is no action %q", verb)}
}

// seen is the state of the rollout that the user saw.
type seen struct {
	Revision int64 `json:"revision"`
	Step     int32 `json:"step"`
}

// request is the body of a request for an action.
type request struct {
	seen
	Reason string   `json:"reason"`
	Nodes  []string `json:"nodes"` // of a retry; empty: all nodes on which the revision failed
}

// maxRequest is the largest body of a request, in bytes: the names of all nodes
// that a retry can name.
const maxRequest = v1alpha1.MaxRetryNodes*256 + 4<<10

// act carries out an action. It takes as long as the page waits.
func (c *cluster) act(_ context.Context, r *http.Request) (any, error) {
	name, verb := r.PathValue("name"), r.PathValue("verb")
	a, err := actionOf(verb)
	if err != nil {
		return nil, err
	}

	var o request
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxRequest))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		return nil, refusal{http.StatusBadRequest, fmt.Errorf("cannot parse the request: %w", err)}
	}
	if len(o.Nodes) > 0 && verb != verbRetry {
		return nil, refusal{http.StatusBadRequest, fmt.Errorf("%s is about a whole rollout: it takes no nodes", verb)}
	}

	reason, err := steer.Reason(o.Reason)
	if err != nil {
		return nil, refusal{http.StatusBadRequest, err}
	}

	words, err := carryOut(r.Context(), c.api, name, a, reason, o)
	if err != nil {
		c.logf("%s of rollout %s: %v", verb, name, err)
		return nil, err
	}

	c.logf("%s", words)

	return map[string]string{"words": words}, nil
}

// foresee answers with what an action would do to the nodes.
func (c *cluster) foresee(ctx context.Context, r *http.Request) (any, error) {
	a, err := actionOf(r.PathValue("verb"))
	if err != nil {
		return nil, err
	}

	edited, err := a.edited(ctx, c.api, r.PathValue("name"))
	if err != nil {
		return nil, err
	}

	e, err := steer.Foresee(ctx, cachedReader{c.cache}, edited)
	if err != nil {
		return nil, err
	}

	lines := e.Lines()
	for i := range lines { // nodes write parts of them
		lines[i] = printable.Line(lines[i])
	}

	return map[string][]string{"lines": lines}, nil
}

// edited returns a rollout as an action would write it.
func (a *action) edited(ctx context.Context, c client.Client, name string) (*v1alpha1.NodeConfigRollout, error) {
	if a.change == nil {
		t, err := steer.Undo(ctx, c, name, 0, 0)
		if err != nil {
			return nil, err
		}

		return t.Desired, nil
	}

	r, err := query.Rollout(ctx, c, name)
	if err == nil {
		_, err = a.change("")(r)
	}

	return r, err
}

// errMoved is the error for a rollout that has changed since the user saw it.
var errMoved = errors.New("has changed since the page was updated: review it and try again")

// carryOut applies an action, if the rollout has not changed since the user saw
// it.
func carryOut(ctx context.Context, c client.Client, name string, a *action, reason string, o request) (string, error) {
	if a.verb == verbUndo {
		if o.Revision == 0 {
			return "", fmt.Errorf("rollout %q %w", name, errMoved)
		}

		t, err := steer.Undo(ctx, c, name, 0, o.Revision)
		if err != nil {
			return "", err
		}

		return t.Write(ctx, c, false)
	}

	does := a.change(reason)
	if a.verb == verbRetry {
		does = steer.Retry(ctx, c, o.Nodes, true) // the page has said why it was stopped
	}

	change := func(r *v1alpha1.NodeConfigRollout) (string, error) {
		now := seen{Step: r.Status.Step}
		if u := r.Status.UpdateRevision; u != nil {
			now.Revision = u.Number
		}
		if a.of >= ofRevision && now.Revision != o.Revision || a.of == ofStep && now.Step != o.Step {
			return "", errMoved
		}

		return does(r)
	}
	if a.observed {
		return steer.EditObserved(ctx, c, name, o.Revision, change)
	}

	return steer.Edit(ctx, c, name, change)
}

// verbs are the subcommands of `kubectl evenkeel rollout` that texts about
// rollouts and nodes advise to use.
var verbs = []string{"abort", "approve", "resume", "retry", "status", "undo", "unfreeze"}

// plainRevision matches revisions of nodes that can be part of a command: a
// UID, or the name that the agent gives a ConfigMap.
var plainRevision = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$`)

// commandsOf returns the commands that texts about a rollout, a node, or a node
// of a rollout can advise to use. The page offers to copy only these: nodes
// write parts of the texts. A name may be empty.
func commandsOf(rollout, node string) []string {
	all := []string{"kubectl evenkeel nodes", "kubectl evenkeel nodes --problems", "kubectl evenkeel doctor"}
	if rollout != "" {
		for _, verb := range verbs {
			all = append(all, "kubectl evenkeel rollout "+verb+" "+rollout)
		}

		all = append(all, "kubectl evenkeel rollout status "+rollout+" -w", "kubectl evenkeel rollout abort "+rollout+" --rollback",
			"kubectl evenkeel nodes --rollout "+rollout+" --failed")
	}

	if node != "" {
		all = append(all, "kubectl evenkeel node "+node, "kubectl evenkeel assign "+node+" -f FILE")
	}
	if rollout != "" && node != "" {
		all = append(all, "kubectl evenkeel rollout retry "+rollout+" "+node)
	}

	return all
}
