// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/operator/steer"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// planOptions has the flags of "rollout plan".
type planOptions struct {
	file                        string
	output                      printing.Format
	simulate                    bool
	failing, notReady, silent   string
	blocked, stuckDrain         string
	drain                       time.Duration
	trial                       time.Duration
	seed                        uint64
	nodes, zones                int
	simulationFlag, madeUpNodes bool // a flag that needs --simulate was given; --nodes was given
}

// onlySimulated are the flags that need --simulate.
var onlySimulated = []string{"fail-rate", "not-ready-rate", "silent-rate", "blocked-rate", "stuck-drain-rate", "seed"}

func (a *app) planCommand() *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan NAME | -f FILE",
		Short: "Show what a rollout would do: order, batches, duration, conflicts",
		Long: `Show what a rollout would do from now on: the order and the batches in which nodes get the revision, how long that takes
if every node is healthy, and which nodes are excluded and why. Nothing is changed.

With -f, the rollout does not have to exist. If it does, the file is its new version.

With --simulate, nodes fail at the given rates; the output has a graph of the progress and the number of nodes that a bad
configuration reaches before the rollout stops. With --nodes, the nodes are simulated too and no cluster is needed. The
same --seed gives the same result.`,
		Example: `  # Plan the rest of a rollout
  kubectl evenkeel rollout plan workers

  # Plan a change of a rollout
  kubectl evenkeel rollout plan -f workers.yaml

  # Simulate a configuration that breaks one node in twenty, on 5000 nodes in 3 zones
  kubectl evenkeel rollout plan -f workers.yaml --simulate --fail-rate 5% --nodes 5000 --zones 3`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.simulationFlag = slices.ContainsFunc(onlySimulated, cmd.Flags().Changed)
			o.madeUpNodes = cmd.Flags().Changed("nodes")
			if cmd.Flags().Changed("zones") && !o.madeUpNodes {
				return errors.New("--zones needs --nodes")
			}

			return a.plan(cmd.Context(), args, o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "filename", "f", "", "a file with a NodeConfigRollout")
	printing.FormatFlag(cmd, &o.output, printing.JSON, printing.YAML) // with every node of every batch
	f.BoolVar(&o.simulate, "simulate", false, "simulate failures at the rates of the other flags")
	f.StringVar(&o.failing, "fail-rate", "0%", "percentage of nodes that fail their trial")
	f.StringVar(&o.notReady, "not-ready-rate", "0%", "percentage of nodes that become NotReady in their trial")
	f.StringVar(&o.blocked, "blocked-rate", "0%", "percentage of nodes that refuse the configuration because of their pods")
	f.StringVar(&o.stuckDrain, "stuck-drain-rate", "0%", "percentage of nodes whose drain never ends, if the rollout drains nodes")
	f.DurationVar(&o.drain, "drain-duration", 0, "duration of a node's drain, if the rollout drains nodes (default: 2m, or half of "+
		"drainOptions.timeoutSeconds)")
	f.StringVar(&o.silent, "silent-rate", "0%", "percentage of nodes whose agent does not answer")
	f.DurationVar(&o.trial, "trial-duration", 0, "duration of a trial if neither spec.trial nor the configuration sets it (default: as "+
		"agents report, or 10m)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the choice of nodes that fail")
	f.IntVar(&o.nodes, "nodes", 0, "simulate this many nodes instead of reading nodes from the cluster")
	f.IntVar(&o.zones, "zones", 1, "number of zones of the simulated nodes")

	return cmd
}

func (a *app) plan(ctx context.Context, args []string, o planOptions) error {
	model, err := o.model()
	if err != nil {
		return err
	}

	switch {
	case (len(args) == 0) == (o.file == ""):
		return errors.New("specify either the name of a rollout, or -f with the manifest of one")
	case o.madeUpNodes && o.file == "":
		return errors.New("--nodes needs -f: with simulated nodes, nothing is read from the cluster")
	case o.madeUpNodes && (o.nodes < 1 || o.nodes > 100_000):
		return fmt.Errorf("--nodes %d: use 1 to 100000", o.nodes)
	case o.madeUpNodes && (o.zones < 1 || o.zones > o.nodes):
		return fmt.Errorf("--zones %d: use 1 to the number of nodes", o.zones)
	case o.simulationFlag && !o.simulate:
		return fmt.Errorf("--%s need --simulate", strings.Join(onlySimulated, ", --"))
	}

	f, r, err := a.planned(ctx, args, o)
	if err != nil {
		return err
	}

	warnOfSelector(a.Env, r)
	model.Drain = cmp.Or(model.Drain, f.DrainTime())
	invalid := checkValid(f)
	if o.file != "" && invalid != nil { // there is nothing to plan yet
		return invalid
	}

	v, err := newPlanReport(ctx, f, model)
	if err != nil {
		return err
	}

	if o.file != "" {
		if err := a.checkSteps(ctx, o, r, v); err != nil {
			return err
		}
	}

	if o.simulate && invalid == nil {
		v.Simulation = newSimulationView(v.run, model, v.windows)
	}
	if o.output != "" {
		return errors.Join(printing.Encode(a.Out, o.output, v), invalid, v.impossible)
	}

	if !o.madeUpNodes && invalid == nil {
		if err := refuseFailed(a.Env, v.Rollout, v.effect.Failed, true, true); err != nil {
			return err
		}

		fmt.Fprintln(a.Out, v.effect.Words())
	}

	v.print(a.Out)
	invalid = errors.Join(invalid, v.impossible)
	if v.Simulation != nil {
		out, colors := a.Colored()
		v.Simulation.print(out, colors)
	}

	return invalid
}

// checkSteps returns an error if a step of a manifest has fewer nodes than an
// earlier one. Steps that are stored already stay valid, whatever becomes of
// the number of nodes.
func (a *app) checkSteps(ctx context.Context, o planOptions, r *v1alpha1.NodeConfigRollout, v *PlanReport) error {
	shrinks := checkGrowth(v.steps, v.members)
	if shrinks == nil {
		return nil
	}

	if !o.madeUpNodes {
		c, err := a.Client()
		if err != nil {
			return err
		}

		stored, err := Push{Name: r.Name}.Stored(ctx, c)
		if err != nil || stored != nil && equality.Semantic.DeepEqual(stored.Spec.Strategy.Steps, r.Spec.Strategy.Steps) {
			return err
		}
	}

	return fmt.Errorf("file %s: spec.strategy.steps: %w", o.file, shrinks)
}

// checkValid returns an error for a rollout whose spec or template is invalid.
func checkValid(f *query.Fleet) error {
	if f.Input.Invalid == "" {
		return nil
	}

	return fmt.Errorf("rollout %s is invalid: %s", f.Input.Name, f.Input.Invalid)
}

// planned reads the rollout that the arguments name, and reads or simulates its
// nodes.
func (a *app) planned(ctx context.Context, args []string, o planOptions) (f *query.Fleet, r *v1alpha1.NodeConfigRollout, err error) {
	if o.file != "" {
		data, _, err := a.ReadFile(ctx, o.file, 4*payload.MaxSize)
		if err != nil {
			return nil, nil, err
		}
		if r, err = ParseManifest(data); err != nil {
			return nil, nil, fmt.Errorf("file %s: %w", o.file, err)
		}

		if o.madeUpNodes {
			f, err = makeUp(r, o.nodes, o.zones)
			return f, r, err
		}
	}

	c, err := a.Client()
	if err != nil {
		return nil, nil, err
	}

	if r == nil {
		if r, err = query.Rollout(ctx, c, args[0]); err != nil {
			return nil, nil, err
		}
	}

	f, err = query.Gather(ctx, c, r, nil)

	return f, r, err
}

// ParseManifest reads the manifest of a rollout. The error says what is wrong
// with it.
func ParseManifest(data []byte) (*v1alpha1.NodeConfigRollout, error) {
	if err := payload.CheckOneDocument(data); err != nil {
		return nil, err
	}

	var r v1alpha1.NodeConfigRollout
	if err := yaml.Unmarshal(data, &r.TypeMeta); err != nil {
		return nil, fmt.Errorf("not a NodeConfigRollout: %w", err)
	}

	if r.APIVersion != v1alpha1.GroupVersion.String() || r.Kind != "NodeConfigRollout" {
		return nil, fmt.Errorf("not a NodeConfigRollout of %s, but %s %s: -f takes the manifest of a rollout; for a kubelet configuration use: "+
			"kubectl evenkeel push NAME -f FILE --dry-run", v1alpha1.GroupVersion, cmp.Or(r.APIVersion, "-"), cmp.Or(r.Kind, "-"))
	}

	if err := yaml.UnmarshalStrict(data, &r); err != nil {
		return nil, err
	}
	if r.Name == "" {
		return nil, errors.New("metadata.name is missing")
	}

	return &r, nil
}

// planOf returns the plan of a rollout, which does not have to exist yet.
func planOf(ctx context.Context, c client.Client, r *v1alpha1.NodeConfigRollout) (*PlanReport, error) {
	managed := map[string]int{}
	f, err := query.Gather(ctx, c, r, func(p fleet.Pair) {
		if what := autoscaled(p.Node); what != "" {
			managed[what]++
		}
	})
	if err != nil {
		return nil, err
	}
	if err := checkValid(f); err != nil {
		return nil, err
	}

	model, err := planOptions{drain: f.DrainTime()}.model()
	if err != nil {
		return nil, err
	}

	report, err := newPlanReport(ctx, f, model)
	if err != nil {
		return nil, err
	}

	report.autoscaled = managed

	return report, nil
}

// PlanReport is the output of "rollout plan".
type PlanReport struct {
	Rollout         string                 `json:"rollout"`
	Revision        int64                  `json:"revision"`
	New             bool                   `json:"new"` // the revision does not exist yet
	Phase           v1alpha1.RolloutPhase  `json:"phase"`
	Message         string                 `json:"message"`
	Nodes           v1alpha1.RolloutCounts `json:"nodes"`
	Preflight       v1alpha1.PreflightMode `json:"preflight,omitempty"` // absent: no agent is asked
	Asked           int                    `json:"asked,omitempty"`     // agents that are asked before the first restart
	Batches         []batchView            `json:"batches"`
	DurationSeconds int64                  `json:"durationSeconds"`
	EndTime         *time.Time             `json:"endTime,omitempty"` // of a rollout with windows
	TrialSeconds    int64                  `json:"trialSeconds"`
	DrainSeconds    int64                  `json:"drainSeconds,omitempty"` // how long the drain of a node is assumed to take
	Approvals       int                    `json:"approvals"`
	PassedOver      []excludedNodes        `json:"passedOver,omitempty"`
	End             v1alpha1.RolloutPhase  `json:"end"` // the last phase
	EndMessage      string                 `json:"endMessage"`
	Limited         bool                   `json:"limited,omitempty"` // the plan does not reach the end
	RestartCost     *describe.RestartCost  `json:"restartCost,omitempty"`
	Gates           []v1alpha1.RolloutGate `json:"gates,omitempty"`
	Simulation      *simulationView        `json:"simulation,omitempty"`
	Sizes           describe.Sizes         `json:"resolvedValues,omitempty"` // that rules give on the nodes: their number by field and value

	steps   []v1alpha1.RolloutStep
	members int32         // of the rollout; percentages refer to them
	limit   time.Duration // of the plan
	windows bool          // the rollout has windows
	run     rollout.Run   // with the failures of the model
	effect  *steer.Effect // nil: the rollout is invalid

	impossible error          // rules have no result on some nodes
	autoscaled map[string]int // nodes that an autoscaler may manage, by what says so
}

// batchView is a batch of nodes that are written to at the same time.
type batchView struct {
	AfterSeconds int64          `json:"afterSeconds"`
	Step         int32          `json:"step"` // counted from 1
	Kind         string         `json:"kind"`
	Nodes        []string       `json:"nodes"`
	Zones        map[string]int `json:"zones"`
}

// excludedNodes are nodes that a rollout excludes for the same reason.
type excludedNodes struct {
	State string   `json:"state"`
	Why   string   `json:"why"`
	Nodes []string `json:"nodes"`
}

// newPlanReport plans for a fleet of healthy nodes, and simulates the model
// too.
func newPlanReport(ctx context.Context, f *query.Fleet, m rollout.Model) (*PlanReport, error) {
	m.Interrupted = func() bool { return ctx.Err() != nil }
	m.Trial = f.TrialTime(m.Trial)
	m.Fail = min(m.Fail, m.Trial/2)
	m.TakeUp = min(m.TakeUp, f.Input.Controller.AgentTimeout.Duration/2) // a healthy agent answers in time
	v := &PlanReport{
		Rollout: f.Input.Name, Revision: f.Input.Target.Number, New: f.Input.Target.ConfigMapRef.UID == fleet.UIDNotCreated,
		Batches:      []batchView{},
		TrialSeconds: int64(m.Trial.Seconds()), steps: f.Input.Spec.Strategy.Steps, Gates: f.Input.Spec.Strategy.Gates,
	}
	v.Sizes, v.impossible = describe.SizesOf(f.Template.Content, f.Machines)
	if rollout.Drains(&f.Input.Spec) {
		v.DrainSeconds = int64(m.Drain.Seconds())
	}
	if v.windows = len(f.Input.Windows) > 0; v.windows {
		m.Limit = mostTimeInWindows
	}

	v.limit = m.Limit
	now := f.Plan()
	v.members = now.Counts.Members
	v.Phase, v.Message, v.Nodes = now.Next.Phase, now.Next.Message, now.Next.Nodes
	v.addExcluded(f, now)
	if f.Input.Invalid != "" { // nothing will change
		v.End, v.EndMessage = now.Next.Phase, now.Next.Message
		return v, nil
	}

	healthy := m
	healthy.Failing, healthy.Breaks, healthy.Silent, healthy.StuckDrain = 0, 0, 0, 0
	run := rollout.Simulate(f.Input, f.Nodes, healthy)
	if run.Asked > 0 {
		v.Preflight, v.Asked = f.Input.Spec.Strategy.Preflight, run.Asked
	}

	v.DurationSeconds, v.Approvals = int64(run.End.Sub(run.Start).Seconds()), run.Approvals
	v.End, v.EndMessage, v.Limited = run.Final.Next.Phase, run.Final.Next.Message, run.Limited
	if v.windows && !v.Limited {
		v.EndTime = new(run.End.UTC().Truncate(time.Second))
	}

	for _, b := range run.Batches {
		v.Batches = append(v.Batches, batchOf(f, run, b))
	}

	v.effect = steer.EffectOn(ctx, f)
	if len(v.Batches) > 0 {
		v.RestartCost = v.effect.Restart
	}

	v.run = rollout.Simulate(f.Input, f.Nodes, m)

	return v, ctx.Err()
}

func batchOf(f *query.Fleet, run rollout.Run, b rollout.Batch) batchView {
	out := batchView{AfterSeconds: int64(b.At.Sub(run.Start).Seconds()), Step: min(b.Step+1, int32(len(f.Input.Spec.Strategy.Steps))),
		Kind: b.Kind.String(), Zones: map[string]int{}}
	for _, i := range b.Nodes {
		out.Nodes = append(out.Nodes, f.Nodes[i].Name)
		out.Zones[cmp.Or(f.Zones[i], "-")]++
	}

	return out
}

// addExcluded fills in the nodes that the rollout excludes now.
func (v *PlanReport) addExcluded(f *query.Fleet, now rollout.Result) {
	index := map[excludedKey]int{}
	for i, state := range now.States {
		switch state {
		case rollout.Failed, rollout.Skipped, rollout.Stale, rollout.Conflicted, rollout.Manual, rollout.Blocked:
		default:
			continue
		}

		s := now.NodeState(i)
		key := excludedKey{state, s.Reason}
		if s.Reason == "" { // the text is the same for many nodes
			key.why = s.Message
		}

		at, ok := index[key]
		if !ok {
			at = len(v.PassedOver)
			index[key] = at
			v.PassedOver = append(v.PassedOver, excludedNodes{State: state.String(), Why: describe.JoinWords(s.Reason, s.Message)})
		}

		v.PassedOver[at].Nodes = append(v.PassedOver[at].Nodes, f.Nodes[i].Name)
	}
}

type excludedKey struct {
	state rollout.State
	why   string
}

func (v *PlanReport) print(w io.Writer) {
	made := ""
	if v.New {
		made = " (new)"
	}

	flying := ""
	if n := v.Nodes.Assigned + v.Nodes.Trial + v.Nodes.Soaking; n > 0 {
		flying = fmt.Sprintf(", %d in flight", n)
	}
	if n := v.Nodes.Draining; n > 0 {
		flying += fmt.Sprintf(", %d draining", n)
	}

	fmt.Fprintf(w, "Rollout %s, revision %d%s: %s selected, %d updated%s, %d to come, %d excluded\n",
		v.Rollout, v.Revision, made, printable.Count(int(v.Nodes.Selected), "node"), v.Nodes.Updated, flying, v.Nodes.Pending, v.excluded())
	for _, line := range v.Sizes.Lines() {
		fmt.Fprintln(w, " ", printable.Line(line))
	}

	if v.Asked > 0 {
		fmt.Fprintf(w, "First, %s %s asked whether the kubelet accepts the revision (preflight: %s); no kubelet is restarted for this.\n",
			printable.Count(v.Asked, "agent"), printable.Verb(v.Asked, "is", "are"), v.Preflight)
	}

	if len(v.Batches) == 0 {
		fmt.Fprintf(w, "No node is assigned the revision: %s: %s\n", v.Phase, printable.Line(v.Message))
	} else {
		v.printBatches(w)
	}

	if v.Limited {
		fmt.Fprintf(w, "The rollout is not complete within %s; increase strategy.maxUnavailable to make it faster.\n", describe.Span(v.limit))
	} else if len(v.Batches) > 0 {
		at := ""
		if v.EndTime != nil {
			at = ", at " + v.EndTime.Format(time.RFC3339)
		}

		fmt.Fprintf(w, "If every node is healthy, it ends after about %s%s: %s. A trial takes %s.\n", longSpan(v.DurationSeconds), at, v.End,
			longSpan(v.TrialSeconds))
	}

	if v.DrainSeconds > 0 {
		fmt.Fprintf(w, "Nodes are drained; a drain is assumed to take %s (--drain-duration).\n", longSpan(v.DrainSeconds))
	}

	if v.Approvals > 0 {
		fmt.Fprintf(w, "It waits for approval %s (kubectl evenkeel rollout approve %s), which is not included.\n",
			printable.Verb(v.Approvals, "once", fmt.Sprintf("%d times", v.Approvals)), v.Rollout)
	}

	if len(v.Gates) > 0 {
		fmt.Fprintln(w, "Gates must pass after each step. The plan assumes that they do, without waiting for data:")
	}

	for _, g := range v.Gates {
		always := ""
		if g.Every == v1alpha1.GateAlways {
			always = ", also while nodes are updated"
		}

		fmt.Fprintf(w, "  %s: %s %s on %s%s\n", printable.Line(g.Name), printable.Line(g.Prometheus.Query), printable.Line(g.Prometheus.Passes),
			printable.Line(g.Prometheus.Server), always)
	}

	if v.RestartCost != nil {
		fmt.Fprintf(w, "Note: %s.\n", v.RestartCost)
	}

	if len(v.PassedOver) > 0 {
		fmt.Fprintln(w, "\nExcluded:")
		for _, p := range v.PassedOver {
			fmt.Fprintf(w, "  %d %s (%s): %s\n", len(p.Nodes), p.State, printable.First(p.Nodes, mostNames, ", "), printable.Line(p.Why))
		}
	}
}

func (v *PlanReport) excluded() (n int) {
	for _, p := range v.PassedOver {
		n += len(p.Nodes)
	}

	return n
}

const (
	mostBatches = 20 // in the table
	mostNames   = 3  // of the nodes of a batch
)

func (v *PlanReport) printBatches(w io.Writer) {
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "BATCH\tSTEP\tAFTER\tNODES\tZONES\tWHICH")
	for i, b := range v.Batches {
		if left := len(v.Batches) - i; i >= mostBatches-1 && left > 1 && i != len(v.Batches)-1 {
			if i == mostBatches-1 {
				fmt.Fprintf(tw, "...\t\t\t\t\t%d more batches; -o json has all\n", left-1)
			}

			continue
		}

		number := fmt.Sprint(i + 1)
		if b.Kind != rollout.Assign.String() {
			number += " " + b.Kind
		}

		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\t%s\n", number, describe.StepWords(v.steps[b.Step-1]), longSpan(b.AfterSeconds), len(b.Nodes),
			zoneCounts(b.Zones), printable.First(b.Nodes, mostNames, ", "))
	}

	tw.Flush()
	fmt.Fprintln(w)
}

func zoneCounts(zones map[string]int) string {
	if _, unknown := zones["-"]; unknown && len(zones) == 1 {
		return "-"
	}

	var out []string
	for _, z := range slices.SortedFunc(maps.Keys(zones), printable.CompareNatural) {
		out = append(out, fmt.Sprintf("%s:%d", z, zones[z]))
	}

	return strings.Join(out, " ")
}

func longSpan(seconds int64) string { return describe.Span(time.Duration(seconds) * time.Second) }
