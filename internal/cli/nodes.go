package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// nodesOptions is what the flags of nodes ask for.
type nodesOptions struct {
	selector, rollout string
	failed, problems  bool
	output            format
}

func (a *app) nodesCommand() *cobra.Command {
	var o nodesOptions
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Show what every node is assigned, runs and falls back to",
		Long: `Show what every node is assigned, runs and falls back to, one line a node.

ASSIGNED is a rollout and its revision, the name of a ConfigMap that a person assigned, or local. CONFIGOK is the status
of the node's condition and its reason. TRIAL is how long the trial has been going on, and how long it takes at least.
SINCE is how long CONFIGOK has been what it is. Nodes without an agent are shown too.

-o wide adds the versions of kubelet and agent, where the agent takes configuration from, and what kind of agent runs:
Host, started by the init system for good; Bootstrap, until a self-hosted one takes over; SelfHosted, in a pod.`,
		Example: `  # All nodes
  kubectl evenkeel nodes

  # Those of a pool that are not fine
  kubectl evenkeel nodes -l pool=workers --problems

  # How a rollout sees its nodes; those on which it failed
  kubectl evenkeel nodes --rollout workers
  kubectl evenkeel nodes --rollout workers --failed`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.nodes(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.selector, "selector", "l", "", "only nodes with these labels")
	f.StringVar(&o.rollout, "rollout", "", "only nodes that this rollout selects, and how they stand to it")
	f.BoolVar(&o.failed, "failed", false, "only nodes whose configuration failed: ConfigOK is False, or with --rollout those that failed in it")
	f.BoolVar(&o.problems, "problems", false, "only nodes that are not fine, whatever the reason")
	formatFlag(cmd, &o.output, formatWide, formatJSON, formatYAML, formatName)
	_ = cmd.RegisterFlagCompletionFunc("rollout", func(cmd *cobra.Command, _ []string, so string) ([]string, cobra.ShellCompDirective) {
		return a.completeRollout(cmd, nil, so)
	})
	return cmd
}

func (a *app) nodes(ctx context.Context, o nodesOptions) error {
	switch {
	case o.failed && o.problems:
		return errors.New("--failed and --problems are two questions: give one; --problems has the failed nodes too")
	case o.selector != "" && o.rollout != "":
		return errors.New("--selector and --rollout both choose nodes: give one")
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return fmt.Errorf("--selector %q: %w", o.selector, err)
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	out := &nodeRows{w: a.Out, format: o.output, standing: o.rollout != "", agents: map[string]int{}, modes: map[string]int{}, Items: []nodeRow{}}
	show := func(row nodeRow) error {
		failed := row.ConfigOK.Status == string(metav1.ConditionFalse)
		if o.rollout != "" {
			failed = row.State == rollout.Failed.String()
		}
		bad := failed || len(row.Problems) > 0 || row.State == rollout.Stale.String()
		if o.failed && !failed || o.problems && !bad {
			return nil
		}
		return out.add(row)
	}
	if o.rollout != "" {
		if err := a.rolloutNodes(ctx, c, o.rollout, show); err != nil {
			return err
		}
		return out.end(a.ErrOut)
	}
	for p, err := range pairs(ctx, c, selector) {
		if err != nil {
			return err
		}
		if err := show(rowOf(p, time.Now())); err != nil {
			return err
		}
	}
	return out.end(a.ErrOut)
}

// rolloutNodes shows the nodes that a rollout selects, and how they stand to it.
func (a *app) rolloutNodes(ctx context.Context, c client.Client, name string, show func(nodeRow) error) error {
	r, err := get(ctx, c, name)
	if err != nil {
		return err
	}
	var rows []nodeRow
	f, err := gather(ctx, c, r, func(p pair) { rows = append(rows, rowOf(p, time.Now())) })
	if err != nil {
		return err
	}
	plan := rollout.Plan(f.policy, f.progress, f.nodes)
	for i, row := range rows {
		s := plan.Standing(i)
		row.State, row.Why = s.State.String(), joinWords(s.Reason, s.Why)
		if err := show(row); err != nil {
			return err
		}
	}
	return nil
}

// joinWords puts a reason before the words that explain it; either may be empty.
func joinWords(reason, why string) string {
	if reason == "" || why == "" {
		return reason + why
	}
	return reason + ": " + why
}

// nodeRow is one node, as it is printed.
type nodeRow struct {
	Name             string    `json:"name"`
	Zone             string    `json:"zone,omitempty"`
	Assigned         string    `json:"assigned,omitempty"`
	Active           string    `json:"active,omitempty"`
	LastKnownGood    string    `json:"lastKnownGood,omitempty"`
	ConfigOK         rowStatus `json:"configOK"`
	Trial            *rowTrial `json:"trial,omitempty"`
	RemoteConfig     string    `json:"remoteConfig,omitempty"`
	RunMode          string    `json:"runMode,omitempty"`
	ComponentVersion string    `json:"componentVersion,omitempty"`
	AgentVersion     string    `json:"agentVersion,omitempty"`
	State            string    `json:"state,omitempty"` // in a rollout
	Why              string    `json:"why,omitempty"`
	Problems         []string  `json:"problems,omitempty"`
}

// rowStatus is ConfigOK.
type rowStatus struct {
	Status  string       `json:"status,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
}

// rowTrial is a trial: how long it has been going on, and how long it takes at least.
type rowTrial struct {
	ElapsedSeconds  int64 `json:"elapsedSeconds"`
	HealthySeconds  int64 `json:"healthySeconds"` // as last reported
	DurationSeconds int64 `json:"durationSeconds"`
	Restarts        int64 `json:"restarts"`
	MostRestarts    int64 `json:"crashLoopThreshold"`
}

const local = "local"

// rowOf sums a node up.
func rowOf(p pair, now time.Time) nodeRow {
	row := nodeRow{Problems: problemsOf(p)}
	if p.node != nil {
		row.Name, row.Zone = p.node.Name, p.node.Labels[corev1.LabelTopologyZone]
		row.ComponentVersion = p.node.Status.NodeInfo.KubeletVersion
	}
	nc := p.config
	if nc == nil {
		return row
	}
	st := &nc.Status
	row.Name = nc.Name
	row.Assigned = assignedName(nc)
	if !hasReported(nc) {
		return row
	}
	row.Active, row.LastKnownGood = revisionLabel(nc, st.Active), local
	if l := st.LastKnownGood; l != nil {
		row.LastKnownGood = revisionLabel(nc, &l.ConfigRevision)
	}
	row.RemoteConfig, row.RunMode, row.AgentVersion = string(st.RemoteConfig), string(st.RunMode), st.AgentVersion
	row.ComponentVersion = cmp.Or(st.ComponentVersion, row.ComponentVersion)
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK); c != nil {
		row.ConfigOK = rowStatus{Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: &c.LastTransitionTime}
	}
	if t := st.Trial; t != nil {
		row.Trial = &rowTrial{HealthySeconds: t.HealthySeconds, DurationSeconds: t.DurationSeconds, Restarts: t.Restarts, MostRestarts: t.CrashLoopThreshold}
		if t.StartTime != nil {
			row.Trial.ElapsedSeconds = int64(max(0, now.Sub(t.StartTime.Time)).Seconds())
		}
	}
	return row
}

// hasReported tells whether an agent has ever written the status.
func hasReported(nc *v1alpha1.NodeConfig) bool {
	return nc.Status.AgentVersion != "" || len(nc.Status.Conditions) > 0
}

// assignedName is what a node shall run, in a word: workers/4, the name of a ConfigMap, or local.
func assignedName(nc *v1alpha1.NodeConfig) string {
	if nc.Status.RemoteConfig == v1alpha1.RemoteConfigConfigMap {
		if assigned := nc.Status.Assigned; assigned != nil {
			return assigned.Name
		}
		return local
	}
	s := nc.Spec.ConfigSource
	if s == nil || s.ConfigMapRef == nil || nc.Status.RemoteConfig == v1alpha1.RemoteConfigDisabled {
		return local
	}
	return refLabel(nc, s.ConfigMapRef.UID, s.ConfigMapRef.Name)
}

func revisionLabel(nc *v1alpha1.NodeConfig, r *v1alpha1.ConfigRevision) string {
	if r == nil {
		return local
	}
	return refLabel(nc, r.UID, r.Name)
}

// refLabel is a ConfigMap by its rollout and revision, if its NodeConfig tells them, else by its name.
func refLabel(nc *v1alpha1.NodeConfig, uid types.UID, name string) string {
	s := nc.Spec.ConfigSource
	if s == nil || s.RolloutRef == nil || s.ConfigMapRef == nil {
		return name
	}
	ref := s.RolloutRef
	switch {
	case s.ConfigMapRef.UID == uid:
		return fmt.Sprintf("%s/%d", ref.Name, ref.Revision)
	case ref.Previous != nil && ref.Previous.ConfigMapRef.UID == uid:
		return fmt.Sprintf("%s/%d", ref.Previous.Rollout, ref.Previous.Revision)
	}
	return name
}

// problemsOf says what is not fine about a node.
func problemsOf(p pair) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if p.node == nil {
		say("there is no Node of this name")
	} else if !isReady(p.node) {
		say("the Node is not Ready")
	}
	nc := p.config
	switch {
	case nc == nil:
		say("no agent yet: no NodeConfig")
		return out
	case !hasReported(nc):
		say("no agent yet: nothing has written the status of its NodeConfig")
		return out
	}
	st := &nc.Status
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK); c == nil || c.Status != metav1.ConditionTrue {
		say("ConfigOK is not True")
	} else if st.Error != "" {
		say("%s", st.Error)
	}
	if takesFromNodeConfig(nc) && st.ObservedGeneration != nc.Generation {
		say("its agent has not answered the newest spec")
	}
	if n := len(st.OverriddenFields); n > 0 {
		say("%d fields have no effect: command-line flags of the kubelet override them", n)
	}
	return out
}

func takesFromNodeConfig(nc *v1alpha1.NodeConfig) bool {
	return nc.Status.RemoteConfig == "" || nc.Status.RemoteConfig == v1alpha1.RemoteConfigNodeConfig
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// nodeRows prints nodes: a table page by page, JSON and YAML when all are there.
type nodeRows struct {
	w        io.Writer
	format   format
	standing bool
	table    interface {
		io.Writer
		Flush() error
	}
	n int
	// agents counts nodes by the version of their agent.
	agents map[string]int
	// modes counts nodes by what kind of agent runs there.
	modes map[string]int
	Items []nodeRow `json:"items"`
}

func (r *nodeRows) add(row nodeRow) error {
	r.n++
	if row.AgentVersion != "" {
		r.agents[row.AgentVersion]++
	}
	if row.RunMode != "" {
		r.modes[row.RunMode]++
	}
	switch r.format {
	case formatJSON, formatYAML:
		r.Items = append(r.Items, row)
		return nil
	case formatName:
		_, err := fmt.Fprintf(r.w, "node/%s\n", row.Name)
		return err
	}
	if r.table == nil {
		tw := printers.GetNewTabWriter(r.w) // it keeps the columns' widths from page to page
		r.table = tw
		fmt.Fprintln(tw, strings.Join(r.header(), "\t"))
	}
	cells := r.cells(row)
	for i := range cells {
		cells[i] = dash(oneLine(cells[i]))
	}
	fmt.Fprintln(r.table, strings.Join(cells, "\t"))
	if r.n%pageSize == 0 {
		return r.table.Flush()
	}
	return nil
}

func (r *nodeRows) end(errOut io.Writer) error {
	switch {
	case r.format == formatJSON || r.format == formatYAML:
		return encode(r.w, r.format, r)
	case r.n == 0 && r.format != formatName:
		fmt.Fprintln(errOut, "no nodes")
	case r.table != nil:
		if err := r.table.Flush(); err != nil {
			return err
		}
		for _, note := range []string{versionNote(r.agents), bootstrapNote(r.modes)} {
			if note != "" {
				fmt.Fprintln(errOut, note)
			}
		}
	}
	return nil
}

// versionNote says which agents run another version than most; "" if they all run one.
func versionNote(agents map[string]int) string {
	versions := mostFirst(agents)
	if len(versions) < 2 {
		return ""
	}
	others, all := 0, 0
	for i, v := range versions {
		if all += agents[v]; i > 0 {
			others += agents[v]
		}
	}
	return oneLine(fmt.Sprintf("note: %d of %d agents run another version (%s) than most (%s): -o wide shows which", others, all, few(versions[1:]), versions[0]))
}

// bootstrapNote says on how many nodes the self-hosted kubelet does not run; "" if there are none.
func bootstrapNote(modes map[string]int) string {
	waits := modes[string(v1alpha1.RunModeBootstrap)]
	if waits == 0 {
		return ""
	}
	all := 0
	for _, n := range modes {
		all += n
	}
	return fmt.Sprintf("note: the bootstrap kubelet runs on %d of %d nodes, and no self-hosted one: -o wide shows which", waits, all)
}

func (r *nodeRows) header() []string {
	out := []string{"NAME", "ASSIGNED", "ACTIVE", "LAST-KNOWN-GOOD", "CONFIGOK", "TRIAL", "SINCE"}
	if r.standing {
		out = append(out, "STATE")
	}
	if r.format == formatWide {
		out = append(out, "ZONE", "KUBELET", "AGENT", "SOURCE", "RUN-MODE", "PROBLEMS")
		if r.standing {
			out = append(out, "WHY")
		}
	}
	return out
}

func (r *nodeRows) cells(row nodeRow) []string {
	ok := "no agent yet"
	if row.ConfigOK.Status != "" {
		ok = row.ConfigOK.Status + "/" + row.ConfigOK.Reason
	}
	trial := "-"
	if t := row.Trial; t != nil {
		trial = span(time.Duration(t.ElapsedSeconds)*time.Second) + "/" + span(time.Duration(t.DurationSeconds)*time.Second)
	}
	since := ""
	if t := row.ConfigOK.Since; t != nil {
		since = age(*t, time.Now())
	}
	out := []string{row.Name, row.Assigned, row.Active, row.LastKnownGood, ok, trial, since}
	if r.standing {
		out = append(out, row.State)
	}
	if r.format == formatWide {
		out = append(out, row.Zone, row.ComponentVersion, row.AgentVersion, row.RemoteConfig, row.RunMode, cell(strings.Join(row.Problems, "; ")))
		if r.standing {
			out = append(out, cell(row.Why))
		}
	}
	return out
}

func dash(s string) string { return cmp.Or(s, "-") }

// cell keeps what may have many lines and tabs to one of a bounded length.
func cell(s string) string {
	s = oneLine(s)
	const most = 120
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// span is a duration to the second, without zeros at its end: 10m, 3m12s.
func span(d time.Duration) string {
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// encode writes a value as JSON or YAML.
func encode(w io.Writer, f format, v any) error {
	if f == formatYAML {
		text, err := yaml.Marshal(v)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
