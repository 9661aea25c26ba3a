package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/fleet/steer"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// action is a change of a rollout that the page offers, as the command of `kubectl evenkeel rollout` with the same name.
type action struct {
	verb    string
	title   string
	means   string // an explanation, in a sentence or two
	command string // the equivalent command, without the rollout's name
	grave   bool   // it cannot simply be undone
	change  func(steer.By) steer.Change
	// reason is whether the rollout shows a reason for the action.
	reason bool
	// observed requires a status for the newest spec.
	observed bool
	// of is the part of the rollout that must not have changed since the user saw it. In an emergency, pausing and aborting must not
	// fail because the rollout has moved to the next step.
	of scope
	// restarts says where the action restarts kubelets.
	restarts restarts
}

// restarts names the nodes whose kubelets restart, for the page.
type restarts string

const (
	restartsNone    restarts = ""
	restartsPending restarts = "pending" // nodes to which the revision is still to come
	restartsBack    restarts = "back"    // nodes that have the revision
)

// scope is the part of a rollout that an action refers to.
type scope int

const (
	ofRollout scope = iota
	ofRevision
	ofStep
)

var actions = []action{
	{"pause", "Pause", "No further nodes get the revision. Nodes in flight finish, nodes that join get it, and a rollback finishes.",
		"pause", false, steer.Pause, true, false, ofRollout, restartsNone},
	{"resume", "Resume", "The pause ends. A halt, a freeze, or a missing approval stays.",
		"resume", false, func(steer.By) steer.Change { return steer.Resume }, false, false, ofRevision, restartsPending},
	{"promote", "Promote", "The rollout passes its current pause and continues with the next step. Limits and the failure policy still apply.",
		"promote", false, func(by steer.By) steer.Change { return steer.Promote(false, by) }, true, true, ofStep, restartsPending},
	{"promote-full", "Promote to the end", "The rollout passes this and every later pause. Limits and the failure policy still apply.",
		"promote --full", false, func(by steer.By) steer.Change { return steer.Promote(true, by) }, true, true, ofStep, restartsPending},
	{"abort", "Abort", "The revision is stopped permanently. Nodes that run it keep it.",
		"abort", true, func(by steer.By) steer.Change { return steer.Abort(false, by) }, true, true, ofRevision, restartsNone},
	{"abort-rollback", "Abort and roll back", "The revision is stopped permanently, and its nodes return to the last succeeded revision.",
		"abort --rollback", true, func(by steer.By) steer.Change { return steer.Abort(true, by) }, true, true, ofRevision, restartsBack},
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
	// Restarts is the key in rolloutView.RestartCosts of the nodes whose kubelets restart; empty: none do.
	Restarts restarts `json:"restarts,omitempty"`
}

// offered returns the actions on a rollout. It tries each on a copy.
func offered(r *v1alpha1.NodeConfigRollout, mayNot string) []actionView {
	var out []actionView
	for _, a := range actions {
		v := actionView{Verb: a.verb, Title: a.title, Means: a.means, Command: "kubectl evenkeel rollout " + a.command + " " + r.Name, Grave: a.grave, Reason: a.reason, Restarts: a.restarts}
		copied := r.DeepCopy()
		words, err := "has no revision", error(nil)
		if r.Status.UpdateRevision != nil || !a.observed {
			words, err = a.change(steer.By{})(copied)
		}
		switch {
		case mayNot != "":
			v.Not = mayNot
		case a.observed && !query.Observed(r):
			v.Not = query.Unobserved
		case err != nil:
			v.Not = printable.Line(r.Name + " " + err.Error())
		case equality.Semantic.DeepEqual(copied.Spec, r.Spec):
			v.Not = printable.Line(r.Name + " " + words)
		}
		out = append(out, v)
	}
	return out
}

// mayNot says why the user is not allowed to change a rollout; empty if the user is.
func (s *Server) mayNot(ctx context.Context, name string) (string, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupName, Resource: "nodeconfigrollouts", Verb: "patch", Name: name},
	}}
	if err := s.api.Create(ctx, review); err != nil {
		return "", fmt.Errorf("check your permissions: %w", err)
	}
	if review.Status.Allowed {
		return "", nil
	}
	words := "you are not allowed to patch nodeconfigrollouts." + v1alpha1.GroupName
	if review.Status.Reason != "" {
		words += " (" + printable.Line(review.Status.Reason) + ")"
	}
	return words + ": ask an administrator for the role evenkeel-operator", nil
}

// seen is the state of the rollout that the user saw.
type seen struct {
	Revision int64 `json:"revision"`
	Step     int32 `json:"step"`
}

// request is the body of a request for an action.
type request struct {
	seen
	Reason string `json:"reason"`
}

// act handles a request for an action.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	name, verb := r.PathValue("name"), r.PathValue("verb")
	i := slices.IndexFunc(actions, func(a action) bool { return a.verb == verb })
	if i < 0 {
		s.fail(w, http.StatusNotFound, fmt.Errorf("there is no action %q", verb))
		return
	}
	var o request
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("cannot parse the request: %w", err))
		return
	}
	by, err := steer.ByMe(r.Context(), s.api, o.Reason)
	if err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	words, err := carryOut(r.Context(), s.api, name, actions[i], by, o.seen)
	if err != nil {
		s.logf("%s of rollout %s: %v", verb, name, err)
		s.fail(w, http.StatusConflict, describe.WithAdvice(err, s.o.Version))
		return
	}
	s.logf("%s", words)
	reply(w, map[string]string{"words": words})
}

// errMoved is the error for a rollout that has changed since the user saw it.
var errMoved = errors.New("has changed since the page was updated: review it and try again")

// carryOut applies an action, if the rollout has not changed since the user saw it.
func carryOut(ctx context.Context, c client.Client, name string, a action, by steer.By, o seen) (string, error) {
	change := func(r *v1alpha1.NodeConfigRollout) (string, error) {
		now := seen{Step: r.Status.Step}
		if u := r.Status.UpdateRevision; u != nil {
			now.Revision = u.Number
		}
		if a.of >= ofRevision && now.Revision != o.Revision || a.of == ofStep && now.Step != o.Step {
			return "", errMoved
		}
		return a.change(by)(r)
	}
	if a.observed {
		return steer.EditObserved(ctx, c, name, o.Revision, change)
	}
	return steer.Edit(ctx, c, name, change)
}
