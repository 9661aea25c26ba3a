package describe

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// StepWords describes a step: 10%, 1 node, or pause 5m.
func StepWords(s rollout.Step) string {
	switch {
	case !s.IsPause() && s.Nodes.Percent:
		return fmt.Sprintf("%d%%", s.Nodes.Value)
	case !s.IsPause():
		return printable.Count(s.Nodes.Value, "node")
	case s.Pause == 0:
		return "pause"
	}
	return "pause " + duration.HumanDuration(s.Pause)
}

// WindowWords describes a maintenance window: 0 22 * * 1-5 for 6h, Europe/Berlin.
func WindowWords(w v1alpha1.MaintenanceWindow) string {
	words := fmt.Sprintf("%s for %s, %s", printable.Line(w.Schedule), Span(w.Duration.Duration), cmp.Or(printable.Line(w.TimeZone), "UTC"))
	if w.Finish == v1alpha1.FinishWithin {
		words += ", trials end within"
	}
	return words
}

// NextWindow says when the next maintenance window opens; empty if the rollout waits for none.
func NextWindow(st *v1alpha1.NodeConfigRolloutStatus, now time.Time) string {
	if st.NextWindowTime == nil {
		return ""
	}
	words := st.NextWindowTime.UTC().Format(time.RFC3339)
	if left := st.NextWindowTime.Sub(now); left > 0 {
		words += ", in " + duration.HumanDuration(left)
	}
	return words
}

// StepName names a step within a sentence. It names a pause by the step before it.
func StepName(steps []rollout.Step, i int) string {
	switch {
	case !steps[i].IsPause():
		return "the step of " + StepWords(steps[i])
	case i == 0:
		return "the " + StepWords(steps[i]) + " at the beginning"
	}
	return "the " + StepWords(steps[i]) + " after " + StepWords(steps[i-1])
}

// Stopped reports whether a rollout in this phase does not continue without a change by a person: exit code 2.
func Stopped(p v1alpha1.RolloutPhase) bool {
	switch p {
	case v1alpha1.RolloutInvalid, v1alpha1.RolloutRollingBack, v1alpha1.RolloutRolledBack, v1alpha1.RolloutHalted, v1alpha1.RolloutStuck:
		return true
	}
	return false
}

// StepsOf returns a rollout's steps, or the default steps.
func StepsOf(r *v1alpha1.NodeConfigRollout) ([]rollout.Step, error) {
	p, err := policy.FromSpec(r, policy.Times{}, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("rollout %q: %w", r.Name, err)
	}
	return p.Steps, nil
}
