// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// rolloutView is what the page shows of a rollout at once.
type rolloutView struct {
	Name     string          `json:"name"`
	Revision int64           `json:"revision,omitempty"` // 0: it has none
	Content  string          `json:"content,omitempty"`  // the ConfigMap of the revision
	Attempt  int64           `json:"attempt,omitempty"`
	Phase    string          `json:"phase"`
	Tone     string          `json:"tone"` // good, busy, waits or bad
	Message  string          `json:"message,omitempty"`
	Commands []string        `json:"commands"` // that can be copied where texts have them
	Selector string          `json:"selector"`
	Steps    []stepView      `json:"steps,omitempty"`
	Step     int32           `json:"step"`
	Counts   []countView     `json:"counts,omitempty"`
	Updated  string          `json:"updated,omitempty"`
	Budget   *budget         `json:"budget,omitempty"` // nil: not known
	Failures failuresView    `json:"failures"`
	Asked    []string        `json:"asked,omitempty"` // the answers of agents that were asked before the first restart
	Paused   bool            `json:"paused,omitempty"`
	Started  *time.Time      `json:"started,omitempty"`
	Stopped  *time.Time      `json:"stopped,omitempty"`
	Gates    []describe.Gate `json:"gates,omitempty"`
	Window   string          `json:"window,omitempty"` // when the next maintenance window opens
	Urgency  int             `json:"urgency"`          // 0: the most urgent, and so on
	Version  string          `json:"version"`          // resource version; the page reads the details again when it changes
}

type stepView struct {
	Words string     `json:"words"`
	State string     `json:"state"`           // done, now or next
	Until *time.Time `json:"until,omitempty"` // the end of a timed pause
}

type countView struct {
	State string `json:"state"`
	N     int32  `json:"n"`
}

// budget is the number of unavailable nodes, and the limit.
type budget struct {
	Used int32 `json:"used"`
	Of   int32 `json:"of"`
}

type failuresView struct {
	N     int32        `json:"n"`
	Most  string       `json:"most"` // the number or percentage that halts the rollout
	Nodes []failedNode `json:"nodes,omitempty"`
}

type failedNode struct {
	Name    string `json:"name"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// viewOf summarizes a rollout.
func viewOf(r *v1alpha1.NodeConfigRollout, now time.Time) rolloutView {
	st := &r.Status
	v := rolloutView{
		Name: r.Name, Phase: printable.Line(describe.OrUnknown(st.Phase)), Tone: toneOf(r), Urgency: describe.UrgencyOf(r).Rank,
		Message: printable.Line(st.Message), Attempt: st.Attempt, Commands: commandsOf(r.Name, ""),
		Selector: describe.SelectorWords(&r.Spec), Step: st.Step, Updated: describe.UpdatedOf(&st.Nodes), Paused: r.Spec.Paused,
		Version: r.ResourceVersion,
	}
	if len(st.FailedNodes) > 0 {
		v.Commands = commandsOf(r.Name, st.FailedNodes[0].Name)
	}
	if !query.Observed(r) {
		v.Phase, v.Tone, v.Message = "Unseen", "waits", query.Unobserved
	}
	if u := st.UpdateRevision; u != nil {
		v.Revision, v.Content = u.Number, printable.Line(u.ConfigMapRef.Name)
	}

	v.Window = describe.NextWindow(st, now)
	if st.StartTime != nil {
		v.Started = &st.StartTime.Time
	}
	if st.Halt != nil {
		v.Stopped = &st.Halt.Time.Time
	}

	if steps, err := describe.StepsOf(r); err != nil {
		v.Message = printable.Line(err.Error())
	} else if v.Revision != 0 {
		for i, s := range steps {
			step := stepView{Words: describe.StepWords(s), State: "next"}
			switch {
			case i < int(st.Step):
				step.State = "done"
			case i == int(st.Step):
				step.State = "now"
				if until := describe.PauseEnds(&s, st); until.After(now) {
					step.Until = &until
				}
			}

			v.Steps = append(v.Steps, step)
		}
	}

	if v.Revision != 0 {
		v.Gates = describe.GatesOf(r, now)
	}

	v.setCounts(&st.Nodes)
	if p := st.Preflight; p != nil {
		v.Asked = append([]string{describe.PreflightLine(p)}, describe.Preflight(p)[1:]...)
	}

	v.Failures.Most = printable.Line(maxFailures(r))
	for _, f := range st.FailedNodes {
		v.Failures.add(f.Name, f.Reason, f.Message)
	}

	return v
}

func (f *failuresView) add(name, reason, message string) {
	f.Nodes = append(f.Nodes, failedNode{printable.Line(name), printable.Line(reason), brief(message)})
}

// setCounts sets what depends on the numbers of nodes.
func (v *rolloutView) setCounts(n *v1alpha1.RolloutCounts) {
	v.Counts, v.Failures.N = nil, n.Failed
	for _, c := range []countView{
		{rollout.Updated.String(), n.Updated}, {rollout.Soaking.String(), n.Soaking}, {rollout.Trial.String(), n.Trial},
		{rollout.Assigned.String(), n.Assigned}, {rollout.Draining.String(), n.Draining}, {rollout.Pending.String(),
			n.Pending}, {rollout.Failed.String(), n.Failed},
		{rollout.Blocked.String(), n.Blocked}, {"Rolling back", n.RollingBack}, {rollout.Stale.String(), n.Stale},
		{rollout.Skipped.String(), n.Skipped}, {rollout.Conflicted.String(), n.Conflicted}, {rollout.Manual.String(), n.Manual},
	} {
		if c.N > 0 {
			v.Counts = append(v.Counts, c)
		}
	}
}

// setPlan replaces the numbers of the status, which the controller wrote some
// time ago, by those of a plan of the cached nodes, so that they agree with the
// cells. The phase stays that of the controller.
func (v *rolloutView) setPlan(f *query.Fleet, plan *rollout.Result) {
	v.Budget = &budget{Used: plan.Counts.Unavailable, Of: plan.Counts.Budget}
	v.setCounts(&plan.Next.Nodes)
	v.Updated = fmt.Sprintf("%d/%d", plan.Counts.Updated, plan.Counts.Members)
	if string(plan.Next.Phase) == v.Phase && f.Input.Target.Number == v.Revision {
		v.Message = printable.Line(plan.Next.Message)
	}

	v.Failures.Nodes = nil
	for _, n := range plan.Next.FailedNodes {
		v.Failures.add(n.Name, n.Reason, n.Message)
	}
}

func maxFailures(r *v1alpha1.NodeConfigRollout) string {
	return cmp.Or(r.Spec.FailurePolicy.MaxFailures, &fleet.DefaultMaxFailures).String()
}

// toneOf returns the color class of a rollout.
func toneOf(r *v1alpha1.NodeConfigRollout) string {
	switch phase := r.Status.Phase; {
	case describe.UrgencyOf(r).Level == describe.LevelProblem:
		return "bad"
	case phase == v1alpha1.RolloutComplete:
		return "good"
	case phase == v1alpha1.RolloutProgressing:
		return "busy"
	}

	return "waits"
}
