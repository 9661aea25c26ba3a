// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

const (
	// failTime is how far into its trial a simulated node fails, unless the
	// trial is short.
	failTime = time.Minute
	// mostTime is the longest duration of a plan.
	mostTime = 30 * 24 * time.Hour
	// mostTimeInWindows is the longest duration of a plan with maintenance
	// windows: most of that time they are closed.
	mostTimeInWindows = 366 * 24 * time.Hour
)

// model returns the behaviour of simulated nodes. The error names the flag.
func (o planOptions) model() (rollout.Model, error) {
	m := rollout.Model{Seed: o.seed, TakeUp: query.AnswerTime, Trial: o.trial, Fail: failTime, Drain: o.drain, Approve: true, Limit: mostTime}
	if o.trial < 0 {
		return m, fmt.Errorf("--trial-duration %s is negative", o.trial)
	}
	if o.drain < 0 {
		return m, fmt.Errorf("--drain-duration %s is negative", o.drain)
	}

	for _, f := range []struct {
		name, value string
		to          *float64
	}{{"fail-rate", o.failing, &m.Failing}, {"not-ready-rate", o.notReady, &m.Breaks}, {"silent-rate", o.silent, &m.Silent},
		{"blocked-rate", o.blocked, &m.Blocked}, {"stuck-drain-rate", o.stuckDrain, &m.StuckDrain}} {
		if f.value == "" {
			continue
		}

		n, percent := strings.CutSuffix(f.value, "%")
		share, err := strconv.ParseFloat(n, 64)
		if err != nil || !percent || !(share >= 0 && share <= 100) {
			return m, fmt.Errorf("--%s %q: use a percentage from 0%% to 100%%, such as 5%%", f.name, f.value)
		}

		*f.to = share / 100
	}

	if sum := m.Failing + m.Breaks + m.Silent + m.Blocked; sum > 1 {
		return m, fmt.Errorf("the sum of --fail-rate, --not-ready-rate, --silent-rate and --blocked-rate is %.4g%%: it must be at most 100%%",
			100*sum)
	}

	return m, nil
}

// makeUp returns a fleet of simulated healthy nodes that run their local
// configuration, for a rollout that has not begun. A ConfigMap that the
// template names is not read.
func makeUp(r *v1alpha1.NodeConfigRollout, nodes, zones int) (*query.Fleet, error) {
	now := time.Now()
	r = r.DeepCopy()
	r.CreationTimestamp.Time, r.Status = now, v1alpha1.NodeConfigRolloutStatus{}
	if r.Spec.Template.ConfigMapRef != nil {
		empty, err := json.Marshal(map[string]string{"apiVersion": payload.GroupedAPIVersion, "kind": "KubeletConfiguration"})
		if err != nil {
			return nil, err
		}

		r.Spec.Template = v1alpha1.RolloutTemplate{KubeletDropIn: &runtime.RawExtension{Raw: empty}}
	}

	f := query.NewFleet(r, now)
	before := now.Add(-time.Hour)
	for i := range nodes {
		n := rollout.Node{
			Name: fmt.Sprintf("node-%0*d", len(strconv.Itoa(nodes)), i+1), Created: before, Ready: true,
			HasConfig: true, Generation: 1, Observed: 1, Reported: true, OK: "True",
		}
		zone := fmt.Sprintf("zone-%d", i%zones+1)
		if r.Spec.Strategy.TopologyKey != "" {
			n.Domain = zone
		}

		f.Nodes, f.Zones, f.Restarts = append(f.Nodes, n), append(f.Zones, zone), append(f.Restarts, fleet.Restart{})
	}

	return f, nil
}

// simulationView is the result of a simulation.
type simulationView struct {
	FailRate     float64 `json:"failRate"` // shares from 0 to 1
	NotReadyRate float64 `json:"notReadyRate"`
	SilentRate   float64 `json:"silentRate"`
	BlockedRate  float64 `json:"blockedRate"`
	StuckDrains  float64 `json:"stuckDrainRate,omitempty"`
	Seed         uint64  `json:"seed"`

	Phase           v1alpha1.RolloutPhase `json:"phase"` // at the end
	Message         string                `json:"message"`
	DurationSeconds int64                 `json:"durationSeconds"`
	EndTime         *time.Time            `json:"endTime,omitempty"` // of a rollout with windows
	Members         int32                 `json:"members"`
	Updated         int32                 `json:"updated"`
	Touched         int32                 `json:"touched"` // nodes that received the revision
	StoppedAfter    *int64                `json:"stoppedAfterSeconds,omitempty"`
	FailedAtStop    int32                 `json:"failedAtStop"`
	FailedInTheEnd  int32                 `json:"failedInTheEnd"`
	Limited         bool                  `json:"limited,omitempty"`
	Samples         []sampleView          `json:"samples"`
}

// sampleView is the state of the rollout at one time.
type sampleView struct {
	AfterSeconds int64                  `json:"afterSeconds"`
	Phase        v1alpha1.RolloutPhase  `json:"phase"`
	Step         int32                  `json:"step"`
	Nodes        v1alpha1.RolloutCounts `json:"nodes"`
}

func newSimulationView(run rollout.Run, m rollout.Model, windows bool) *simulationView {
	after := func(t time.Time) int64 { return int64(t.Sub(run.Start).Seconds()) }
	c := run.Final.Counts
	v := &simulationView{
		FailRate: m.Failing, NotReadyRate: m.Breaks, SilentRate: m.Silent, BlockedRate: m.Blocked, StuckDrains: m.StuckDrain, Seed: m.Seed,
		Phase: run.Final.Next.Phase, Message: run.Final.Next.Message, DurationSeconds: after(run.End), Members: c.Members, Updated: c.Updated,
		Touched: int32(run.Touched), FailedInTheEnd: c.Failed, Limited: run.Limited,
	}
	if windows {
		v.EndTime = new(run.End.UTC().Truncate(time.Second))
	}

	if s := run.Stopped; s != nil {
		at := after(s.At)
		v.StoppedAfter, v.FailedAtStop = &at, s.Counts.Failed
	}

	for _, s := range run.Samples {
		v.Samples = append(v.Samples, sampleView{AfterSeconds: after(s.At), Phase: s.Phase, Step: s.Step, Nodes: s.Counts.RolloutCounts})
	}

	return v
}

func (v *simulationView) print(w io.Writer, colors bool) {
	blocked := ""
	if v.BlockedRate > 0 {
		blocked = fmt.Sprintf(", %.4g%% are blocked by their pods", 100*v.BlockedRate)
	}
	if v.StuckDrains > 0 {
		blocked += fmt.Sprintf(", %.4g%% have drains that never end", 100*v.StuckDrains)
	}

	fmt.Fprintf(w, "\nSimulated: %.4g%% of the nodes fail their trial, %.4g%% become NotReady, %.4g%% have a silent agent%s (seed %d)\n\n",
		100*v.FailRate, 100*v.NotReadyRate, 100*v.SilentRate, blocked, v.Seed)
	if plot := v.plot(colors); plot != "" {
		fmt.Fprintln(w, plot)
		fmt.Fprintln(w)
	}

	line := func(key, format string, args ...any) {
		fmt.Fprintf(w, "%-22s"+format+"\n", append([]any{key}, args...)...)
	}
	at := ""
	if v.EndTime != nil {
		at = ", at " + v.EndTime.Format(time.RFC3339)
	}

	line("Result", "%s, after %s%s", v.Phase, longSpan(v.DurationSeconds), at)
	if v.Limited {
		line("", "not complete within that time")
	}

	line("", "%s", printable.Line(v.Message))
	line("Updated", "%s", v.share(v.Updated))
	if v.StoppedAfter == nil {
		line("Reached", "%s", v.share(v.Touched))
	} else {
		line("Reached", "%s: the blast radius", v.share(v.Touched))
		line("Stopped after", "%s", longSpan(*v.StoppedAfter))
		line("Failed at the stop", "%s", v.share(v.FailedAtStop))
	}

	line("Failed at the end", "%s", v.share(v.FailedInTheEnd))
}

func (v *simulationView) share(n int32) string {
	if v.Members == 0 {
		return fmt.Sprint(n)
	}

	return fmt.Sprintf("%d of %d (%.1f%%)", n, v.Members, 100*float64(n)/float64(v.Members))
}

const (
	plotWidth  = 64
	plotHeight = 12
)

// plot returns a graph of updated, unavailable and failed nodes over time; ""
// if no time has passed.
func (v *simulationView) plot(colors bool) string {
	if v.DurationSeconds == 0 || len(v.Samples) == 0 {
		return ""
	}

	var updated, unavailable, failed [plotWidth]float64
	most := 1.0
	sample := 0
	for x := range plotWidth {
		at := v.DurationSeconds * int64(x) / (plotWidth - 1)
		for sample+1 < len(v.Samples) && v.Samples[sample+1].AfterSeconds <= at {
			sample++
		}

		n := v.Samples[sample].Nodes
		updated[x], unavailable[x], failed[x] = float64(n.Updated), float64(n.Unavailable), float64(n.Failed)
		most = max(most, updated[x], unavailable[x], failed[x])
	}

	options := []asciigraph.Option{
		asciigraph.Height(min(plotHeight, int(most))), asciigraph.Precision(0), asciigraph.LowerBound(0),
		asciigraph.SeriesChars(asciigraph.CreateCharSet("."), asciigraph.DefaultCharSet, asciigraph.CreateCharSet("x")),
	}
	if colors {
		options = append(options, asciigraph.SeriesColors(asciigraph.Yellow, asciigraph.Green, asciigraph.Red))
	}

	plot := asciigraph.PlotMany([][]float64{unavailable[:], updated[:], failed[:]}, options...)
	end := longSpan(v.DurationSeconds)
	indent := strings.Repeat(" ", max(0, strings.IndexAny(plot, "┤┼"))+1)

	return plot + "\n" + indent + "0s" + strings.Repeat(" ", max(1, plotWidth-2-len(end))) + end +
		"\n" + indent + "nodes over time: ─ updated   . unavailable   x failed"
}
