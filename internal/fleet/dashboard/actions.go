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

// action is one thing that can be done to a rollout: what `kubectl evenkeel rollout` does under the same name.
type action struct {
	verb    string
	title   string
	means   string // what it does, in a sentence or two
	command string // the same on a command line, without the rollout's name
	grave   bool   // it is not simply taken back
	change  steer.Change
	// judged tells that the change needs a status that answers the spec.
	judged bool
	// of is what must be as the person saw it. An emergency waits for nobody to look again: Pause holds for whatever is there,
	// and an abort for the whole revision.
	of scope
}

// scope is how much of a rollout an action is about.
type scope int

const (
	ofRollout scope = iota
	ofRevision
	ofStep
)

var actions = []action{
	{"pause", "Pause", "No further nodes are given the revision. Nodes in flight go on, nodes that join are served, and a rollback is finished.",
		"pause", false, steer.Pause, false, ofRollout},
	{"resume", "Resume", "The pause is taken back. It does not lift a stop, an approval that is missing, or a freeze.",
		"resume", false, steer.Resume, false, ofRevision},
	{"promote", "Promote", "The rollout passes the pause that it waits at, and goes on with the next step. Budgets and the failure policy still hold.",
		"promote", false, steer.Promote(false), true, ofStep},
	{"promote-full", "Promote to the end", "The rollout passes this and every later pause. Budgets and the failure policy still hold.",
		"promote --full", false, steer.Promote(true), true, ofStep},
	{"abort", "Abort", "The revision is stopped for good. Nodes that run it keep it.",
		"abort", true, steer.Abort(false), true, ofRevision},
	{"abort-rollback", "Abort and roll back", "The revision is stopped for good, and its nodes go back to the revision that succeeded last.",
		"abort --rollback", true, steer.Abort(true), true, ofRevision},
}

// actionView is an action as the page offers it, or says why not.
type actionView struct {
	Verb    string `json:"verb"`
	Title   string `json:"title"`
	Means   string `json:"means"`
	Command string `json:"command"`
	Grave   bool   `json:"grave,omitempty"`
	Not     string `json:"not,omitempty"` // why it is not offered
}

// offered are the actions on a rollout, each tried on a copy of it.
func offered(r *v1alpha1.NodeConfigRollout, mayNot string) []actionView {
	var out []actionView
	for _, a := range actions {
		v := actionView{Verb: a.verb, Title: a.title, Means: a.means, Command: "kubectl evenkeel rollout " + a.command + " " + r.Name, Grave: a.grave}
		copied := r.DeepCopy()
		words, err := "has no revision", error(nil)
		if r.Status.UpdateRevision != nil || !a.judged {
			words, err = a.change(copied)
		}
		switch {
		case mayNot != "":
			v.Not = mayNot
		case a.judged && !query.Observed(r):
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

// mayNot says why the user may not change a rollout, empty if they may. The error is for who could not be asked.
func (s *Server) mayNot(ctx context.Context, name string) (string, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupName, Resource: "nodeconfigrollouts", Verb: "patch", Name: name},
	}}
	if err := s.api.Create(ctx, review); err != nil {
		return "", fmt.Errorf("ask for your rights: %w", err)
	}
	if review.Status.Allowed {
		return "", nil
	}
	words := "you have no right to patch nodeconfigrollouts." + v1alpha1.GroupName
	if review.Status.Reason != "" {
		words += " (" + printable.Line(review.Status.Reason) + ")"
	}
	return words + ": ask an administrator for the role evenkeel-operator", nil
}

// order is what a page asks to be done. What the person saw goes with it: it is done to nothing else.
type order struct {
	Revision int64 `json:"revision"`
	Step     int32 `json:"step"`
}

// act does what a page asks for.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	name, verb := r.PathValue("name"), r.PathValue("verb")
	i := slices.IndexFunc(actions, func(a action) bool { return a.verb == verb })
	if i < 0 {
		s.fail(w, http.StatusNotFound, fmt.Errorf("there is no action %q", verb))
		return
	}
	var o order
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("the request cannot be read: %w", err))
		return
	}
	words, err := carryOut(r.Context(), s.api, name, actions[i], o)
	if err != nil {
		s.logf("%s of rollout %s: %v", verb, name, err)
		s.fail(w, http.StatusConflict, describe.WithAdvice(err, s.o.Version))
		return
	}
	s.logf("%s", words)
	reply(w, map[string]string{"words": words})
}

// errMoved is for a rollout that is not any more where the person saw it.
var errMoved = errors.New("has moved on since you looked: look again, and decide anew")

// carryOut writes what an action means, if the rollout is still where the person saw it.
func carryOut(ctx context.Context, c client.Client, name string, a action, o order) (string, error) {
	change := func(r *v1alpha1.NodeConfigRollout) (string, error) {
		now := order{Step: r.Status.Step}
		if u := r.Status.UpdateRevision; u != nil {
			now.Revision = u.Number
		}
		if a.of >= ofRevision && now.Revision != o.Revision || a.of == ofStep && now.Step != o.Step {
			return "", errMoved
		}
		return a.change(r)
	}
	if a.judged {
		return steer.EditObserved(ctx, c, name, o.Revision, change)
	}
	return steer.Edit(ctx, c, name, change)
}
