// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

func (a *app) statusCommand() *cobra.Command {
	var f printing.Format
	var w waiting
	var until string
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show the progress of a rollout, or wait for it",
		Long: `Show the progress of a rollout, or wait for it.

Without -w and --wait-for it prints the status once. The exit code is 0 if the rollout is complete or in progress, 2 if it is
halted, rolled back, invalid or stuck, or complete with more failed nodes than its policy tolerates, and 4 if it waits for
approval.

With -w it waits until the rollout is complete (0), halted, rolled back, invalid or stuck (2), or waits for approval (4).
It follows a rollback to its end. --wait-for implies -w and ends the wait earlier, with exit code 0:
  --wait-for=complete   the same as -w
  --wait-for=paused     at a pause of the steps, or when the rollout is paused
  --wait-for=step=N     when step N, counted from 0, has begun; if N is the number of steps: when all steps are done
When --timeout expires, the exit code is 3. While the API server does not answer, -w tries again.

-w ignores a status that the controller wrote for an older spec, and waits for a newer one.

-w prints a line for each change; with -o json, one object per line. "kubectl evenkeel nodes --rollout NAME" lists the nodes, and
"kubectl evenkeel dashboard" shows them live.`,
		Example: `  kubectl evenkeel rollout status workers
  kubectl evenkeel rollout status workers -w --timeout 1h

  # In a pipeline: wait for the canaries, check them, continue
  kubectl evenkeel rollout status workers --wait-for=paused --timeout 30m
  kubectl evenkeel rollout approve workers
  kubectl evenkeel rollout status workers --wait-for=complete --timeout 6h`,
		Args:              oneRollout,
		ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if w.until, err = parseGoal(until); err != nil {
				return err
			}

			wait, timed := cmd.Flags().Changed("watch"), cmd.Flags().Changed("timeout")
			switch {
			case timed && !wait && until == "":
				return errors.New("--timeout needs -w or --wait-for")
			case timed && w.timeout <= 0:
				return fmt.Errorf("--timeout must be longer than 0, such as 30m, not %s", w.timeout)
			}

			if w.watch || until != "" {
				return a.await(cmd.Context(), args[0], f, w)
			}

			return a.status(cmd.Context(), args[0], f)
		},
	}
	printing.FormatFlag(cmd, &f, printing.Wide, printing.JSON, printing.YAML, printing.Name)
	cmd.Flags().BoolVarP(&w.watch, "watch", "w", false, "wait until the rollout is complete, stopped or waits for approval")
	cmd.Flags().StringVar(&until, "wait-for", "", "wait until: complete, paused, or step=N")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "with -w or --wait-for: stop waiting after this long, such as 30m, with exit code 3")
	_ = cmd.RegisterFlagCompletionFunc("wait-for", cobra.FixedCompletions([]string{"complete", "paused", "step="},
		cobra.ShellCompDirectiveNoFileComp))

	return cmd
}

// waiting has the flags about what to wait for, and for how long.
type waiting struct {
	watch   bool
	until   goal
	timeout time.Duration // 0: no limit
}

// goal is the value of --wait-for. The zero value is the end of the rollout.
type goal struct {
	paused bool
	steps  bool // until step has begun
	step   int
}

// parseGoal parses the value of --wait-for.
func parseGoal(s string) (goal, error) {
	switch s {
	case "", "complete":
		return goal{}, nil
	case "paused":
		return goal{paused: true}, nil
	}

	if n, ok := strings.CutPrefix(s, "step="); ok {
		step, err := strconv.Atoi(n)
		if err == nil && step >= 0 && step <= v1alpha1.MaxSteps {
			return goal{step: step, steps: true}, nil
		}

		return goal{}, fmt.Errorf("--wait-for=%s: no rollout has this step: use a number from 0 to %d", s, v1alpha1.MaxSteps)
	}

	return goal{}, fmt.Errorf("--wait-for must be complete, paused or step=N, not %q", s)
}

// check returns an error if the rollout has no such step.
func (g goal) check(r *v1alpha1.NodeConfigRollout) error {
	steps, err := describe.StepsOf(r)
	if err != nil {
		return err
	}

	if g.steps && g.step > len(steps) {
		return fmt.Errorf("rollout %q has no step %d: it has %s, counted from 0; use step=%d to wait until all are done", r.Name, g.step,
			printable.Count(len(steps), "step"), len(steps))
	}

	return nil
}

// reached reports whether a rollout has reached the goal.
func (g goal) reached(r *v1alpha1.NodeConfigRollout) bool {
	switch {
	case r.Status.Phase == v1alpha1.RolloutComplete:
		return true
	case describe.Stopped(r.Status.Phase):
		return false
	case g.steps:
		return int(r.Status.Step) >= g.step
	case !g.paused:
		return false
	}

	switch r.Status.Phase {
	case v1alpha1.RolloutPaused, v1alpha1.RolloutAwaitingApproval:
		return true
	case v1alpha1.RolloutWaiting: // or for something else, such as a gate or a window
		steps, err := describe.StepsOf(r)
		return err == nil && r.Status.NextWindowTime == nil && int(r.Status.Step) < len(steps) && steps[r.Status.Step].Pause != nil
	}

	return r.Spec.Paused
}

// tooManyFailed reports whether more nodes have failed than the rollout's
// policy tolerates.
func tooManyFailed(r *v1alpha1.NodeConfigRollout) bool {
	c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionDegraded)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == rollout.DegradedTooMany
}

// exitCode returns the exit code for a rollout's status, and whether the wait
// for the goal has ended.
func exitCode(r *v1alpha1.NodeConfigRollout, g goal) (code int, done bool) {
	switch p := r.Status.Phase; {
	case !query.Observed(r):
		return command.ExitComplete, false
	case p == v1alpha1.RolloutComplete && tooManyFailed(r):
		return command.ExitHalted, true // nodes that joined after the last step failed
	case g.reached(r):
		return command.ExitComplete, true
	case describe.Stopped(p):
		return command.ExitHalted, p != v1alpha1.RolloutRollingBack
	case p == v1alpha1.RolloutAwaitingApproval:
		return command.ExitApproval, true
	}

	return command.ExitComplete, false
}

// status shows a rollout once.
func (a *app) status(ctx context.Context, name string, f printing.Format) error {
	c, r, err := a.load(ctx, name)
	if err != nil {
		return err
	}

	a.warnIfControllerSilent(ctx, c, r)
	if f != "" && f != printing.Wide {
		err = printing.Object(a.Out, f, r)
	} else {
		out, colors := a.Colored()
		v := view{rollout: r, gone: goneNodes(ctx, c, r), now: time.Now(), style: printing.Style(colors), wide: f == printing.Wide}
		if _, err = fmt.Fprintln(out, strings.Join(v.lines(), "\n")); err == nil {
			for _, words := range suspected(ctx, c, r) {
				_, err = fmt.Fprintln(out, "\n"+v.style.Red(printable.Line(words)))
			}
		}
	}

	if err != nil {
		return err
	}
	if code, _ := exitCode(r, goal{}); code != command.ExitComplete {
		return &command.Exit{Code: code}
	}

	return nil
}

// goneNodes returns the nodes that a rollout's status names as failed, and that
// no longer exist.
func goneNodes(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout) map[string]bool {
	gone := map[string]bool{}
	for _, n := range r.Status.FailedNodes {
		gone[n.Name] = apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Name: n.Name}, &corev1.Node{}))
	}

	return gone
}

// suspected says what changes of configuration by a rollout and of health have
// in common. It returns nothing if the nodes cannot be read in a short time:
// the status does not depend on them.
func suspected(ctx context.Context, c client.Client, r *v1alpha1.NodeConfigRollout) (lines []string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	settings, err := query.Settings(ctx, c, r)
	if err != nil || r.Status.Nodes.Updated == 0 {
		return nil
	}

	s := describe.Situation{Rollouts: []v1alpha1.NodeConfigRollout{*r}}
	for p, err := range query.Pairs(ctx, c, labels.Everything()) {
		if err != nil {
			return nil
		}

		s.Add(p, describe.Standing{}, settings.Maintenance, time.Now())
	}

	for _, l := range describe.SummaryOf(s) {
		if l.Reason == describe.ReasonSuspected && l.Object == r.Name {
			lines = append(lines, l.Words+": "+l.Next)
		}
	}

	return lines
}

// warnIfControllerSilent warns if no controller leads. Without a Lease none
// does, unless a controller has processed the rollout.
func (a *app) warnIfControllerSilent(ctx context.Context, c client.Client, r *v1alpha1.NodeConfigRollout) {
	if settings, err := query.Settings(ctx, c, r); err == nil {
		a.WarnIfControllerSilent(ctx, c, settings, r.Status.Controller == nil)
	}
}

// await shows a rollout until it has reached the goal, cannot reach it any
// more, or the time is up.
func (a *app) await(ctx context.Context, name string, f printing.Format, w waiting) error {
	c, err := a.Client()
	if err != nil {
		return err
	}

	interrupted := ctx
	ctx, stop := command.Limited(ctx, w.timeout)
	defer stop()
	r, err := query.Rollout(ctx, c, name)
	if err == nil {
		err = w.until.check(r)
	}
	if err != nil {
		return a.ended(interrupted, ctx, w, name, nil, err)
	}

	a.warnIfControllerSilent(ctx, c, r)
	out := follower{out: a.Out, errOut: a.ErrOut, format: f}
	var late <-chan time.Time
	if query.Observed(r) {
		out.show(r)
	} else {
		late = time.After(query.ObserveTimeout) // the controller answers soon
	}

	for updates := watchRollout(ctx, c, name); ; {
		if code, over := exitCode(r, w.until); over {
			if code == command.ExitComplete {
				return nil
			}

			return &command.Exit{Code: code}
		}

		select {
		case u, open := <-updates:
			switch {
			case !open:
				return a.ended(interrupted, ctx, w, name, r, ctx.Err())
			case u.Err != nil && u.Last:
				return a.ended(interrupted, ctx, w, name, r, u.Err)
			case u.Err != nil:
				out.trouble(u.Err)
			default:
				r = u.Object
				query.FromServer(r)
				if query.Observed(r) || late == nil {
					out.show(r)
				}
			}
		case <-late:
			if late = nil; !query.Observed(r) {
				out.show(r)
			}
		}
	}
}

// ended returns the error of a wait that did not reach its goal.
func (a *app) ended(interrupted, ctx context.Context, w waiting, name string, r *v1alpha1.NodeConfigRollout, err error) error {
	switch {
	case interrupted.Err() != nil:
		return fmt.Errorf("interrupted; the rollout continues: kubectl evenkeel rollout status %s -w", name)
	case ctx.Err() != nil:
		last := "its status is not known"
		if r != nil {
			last = plainLine(r)
		}

		return &command.Exit{Code: command.ExitTimeout, Err: fmt.Errorf("timed out after %s: %s", w.timeout, last)}
	}

	return err
}

// plainLine returns the status of a rollout as one line.
func plainLine(r *v1alpha1.NodeConfigRollout) string {
	st := &r.Status
	if !query.Observed(r) {
		return fmt.Sprintf("%s: %s", r.Name, query.Unobserved)
	}

	name, phase, message := r.Name, describe.OrUnknown(st.Phase), st.Message
	if u := st.UpdateRevision; u != nil {
		name += fmt.Sprintf(" revision %d", u.Number)
		if st.Attempt > 1 {
			name += fmt.Sprintf(" attempt %d", st.Attempt)
		}

		message = strings.TrimPrefix(message, fmt.Sprintf("revision %d: ", u.Number))
		if steps := stepsDone(r); steps != "" && !strings.Contains(message, " steps done") {
			phase += ", " + steps + " steps done"
		}

		if st.Nodes.Members > 0 && !strings.Contains(message, " updated") { // otherwise the message has the counts
			phase += ", " + describe.UpdatedOf(&st.Nodes) + " updated"
			if n := inFlight(&st.Nodes); n > 0 {
				phase += fmt.Sprintf(", %d in flight", n)
			}
			if st.Nodes.Failed > 0 {
				phase += fmt.Sprintf(", %d failed", st.Nodes.Failed)
			}
		}
	}

	return printable.Line(name + ": " + describe.JoinWords(phase, message))
}

func inFlight(n *v1alpha1.RolloutCounts) int32 { return n.Assigned + n.Trial + n.Soaking }

// watchRollout watches a rollout; see command.Watched.
func watchRollout(ctx context.Context, c client.WithWatch, name string) <-chan command.Update[*v1alpha1.NodeConfigRollout] {
	return command.Watched[*v1alpha1.NodeConfigRollout]{
		List: &v1alpha1.NodeConfigRolloutList{}, Name: name, What: fmt.Sprintf("rollout %q", name), Deleted: "its nodes keep their configuration",
	}.Follow(ctx, c)
}

// follower prints a rollout while a command waits for it.
type follower struct {
	out, errOut io.Writer
	format      printing.Format
	last        string // the line that was printed last
	troubled    bool
}

// line returns a version of the rollout as it is printed.
func (o *follower) line(r *v1alpha1.NodeConfigRollout) (string, error) {
	switch o.format {
	case printing.JSON:
		r = r.DeepCopy()
		r.ManagedFields = nil
		return printing.Line(r)
	case printing.YAML:
		return printing.Document(r)
	case printing.Name:
		return "nodeconfigrollout." + v1alpha1.GroupName + "/" + r.Name, nil
	}

	return plainLine(r), nil
}

// show prints a newer version of the rollout.
func (o *follower) show(r *v1alpha1.NodeConfigRollout) {
	o.troubled = false
	line, err := o.line(r)
	if err != nil {
		line = fmt.Sprintf("%s: %v", r.Name, err)
	}

	if line != o.last {
		fmt.Fprintln(o.out, line)
		o.last = line
	}
}

// trouble prints, once, that the API server does not answer.
func (o *follower) trouble(err error) {
	if !o.troubled {
		fmt.Fprintf(o.errOut, "waiting for the API server: %s\n", printable.Line(describe.Brief(err)))
	}

	o.troubled = true
}
