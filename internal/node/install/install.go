// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
)

// ErrTakenBack means that the node was changed, did not become healthy, and has
// its previous state again.
var ErrTakenBack = errors.New("taken back")

// ErrBusy means that another install or uninstall runs.
var ErrBusy = errors.New("another install or uninstall is at work on this node")

// ErrNotItsTurn means that an existing agent would be changed, and the Node
// does not name this attempt.
var ErrNotItsTurn = errors.New("not this node's turn")

// Request is the requested change.
type Request struct {
	Unit         string   // name
	Flags        []string // of the agent
	Keep         bool     // keep the flags of the present drop-in
	Attempt      string   // a failed attempt of this name is not repeated; empty: always try
	Turn         string   // the Node must name it before an existing agent is changed; empty: no condition
	DryRun       bool
	AllowPodLoss bool // restart the kubelet although pods would be lost
	Force        bool // of uninstall: also an edited drop-in, and without taking it back
	Purge        bool // of uninstall: also the agent's state
	Timing       Timing
}

// DropIn returns the path of the drop-in of a unit.
func (h *Host) DropIn(unit string) string {
	return filepath.Join(h.UnitDir, unit+".d", DropInName)
}

// trial returns the path where a drop-in is tried.
func (h *Host) trial(unit string) string {
	return filepath.Join(h.TrialDir, unit+".d", trialName)
}

func (h *Host) printf(format string, args ...any) { fmt.Fprintf(h.Out, format+"\n", args...) }

// Install adds the agent to the unit of a kubelet. It returns a message for the
// user. An error that is not ErrTakenBack means that nothing was changed.
func (h *Host) Install(ctx context.Context, r Request) (string, error) {
	return h.locked(ctx, r, h.install)
}

// locked calls do while no other install or uninstall runs. A dry run writes
// nothing, not even a lock.
func (h *Host) locked(ctx context.Context, r Request, do func(context.Context, Request) (string, error)) (string, error) {
	if r.DryRun {
		return do(ctx, r)
	}
	if err := atomicfile.MakeDir(h.FS, h.StateDir, 0o700); err != nil {
		return "", fmt.Errorf("directory for the install records: %w", err)
	}

	lock, err := lockfile.TryAcquire(h.lock())
	if errors.Is(err, lockfile.ErrHeld) {
		return "", fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return "", err
	}

	defer func() { _ = lock.Release() }() // the kernel releases it when this process exits
	h.tidy(h.StateDir, "")

	return do(ctx, r)
}

// begin returns the unit and the record of its last change, after it has ended
// an interrupted one. An install that was interrupted is left to an uninstall
// to undo.
func (h *Host) begin(ctx context.Context, r Request, o operation, unit func(context.Context, string) (Unit, error)) (u Unit, before *change,
	err error) {
	if u, err = unit(ctx, serviceName(r.Unit)); err != nil {
		return u, nil, err
	}

	before, err = h.load(u.Name)
	switch {
	case err != nil:
		return u, nil, err
	case before.open() && r.DryRun && o == installing:
		return u, before, fmt.Errorf("%s of %s was interrupted (begun %s): run it again, or uninstall, to complete it or take it back first",
			before.Operation, before.Unit, before.Begun.Format(time.RFC3339))
	case before.open() && !r.DryRun && (o == installing || before.Operation == uninstalling):
		if err := h.resume(ctx, before, r.Timing); err != nil {
			return u, before, err
		}
		if u, err = unit(ctx, u.Name); err != nil {
			return u, before, err
		}
	}

	if !r.DryRun {
		for _, path := range []string{h.DropIn(u.Name), h.trial(u.Name)} { // a change that is open writes its files again
			h.tidy(filepath.Dir(path), filepath.Base(path)+".")
		}
	}

	return u, before, before.repeats(o, r.Attempt)
}

func serviceName(unit string) string { return strings.TrimSuffix(unit, ".service") + ".service" }

func (h *Host) install(ctx context.Context, r Request) (string, error) {
	unit, _, err := h.begin(ctx, r, installing, h.unit)
	if err != nil {
		return "", err
	}

	p, err := h.plan(ctx, unit, r)
	if err != nil {
		return "", err
	}
	if p.done(unit) && !h.replaced(unit, p.Agent[0]) {
		return fmt.Sprintf("evenkeel-agent runs the kubelet of %s already (%s): nothing to do", unit.Name, p.DropIn), nil
	}

	if !r.DryRun {
		if err := h.checkTurn(ctx, r, p); err != nil {
			return "", err
		}
	}

	if err := h.checkHealthyBefore(ctx, unit, p.Target); err != nil {
		return "", err
	}
	if err := r.checkPods(ctx, p.checked); err != nil {
		return "", err
	}
	if r.DryRun {
		return h.describe(unit, p), nil
	}
	if h.Volatile(h.UnitDir) {
		h.printf("warning: %s", h.volatileWarning())
	}
	if _, err := h.Place(false); err != nil {
		return "", err
	}

	p.Healthy = true
	if err := h.apply(ctx, &p.change, r.Timing); err != nil {
		return "", err
	}

	return fmt.Sprintf("evenkeel-agent runs the kubelet of %s%s", unit.Name, p.Target.description()), nil
}

// CommandLine returns the agent's flags and the kubelet's command line, with
// variables expanded, that Install would use. The error says why Install would
// refuse the unit. It changes nothing.
func (h *Host) CommandLine(ctx context.Context, r Request) (agent, kubelet []string, err error) {
	r.DryRun = true
	unit, _, err := h.begin(ctx, r, installing, h.unit)
	if err != nil {
		return nil, nil, err
	}

	p, err := h.plan(ctx, unit, r)
	if err != nil {
		return nil, nil, err
	}

	return p.Agent[1:], p.kubelet, nil
}

// checkTurn returns ErrNotItsTurn if an existing agent would be changed and the
// Node does not name this attempt. Installer pods may start on many nodes at
// once, with another agent or other flags, when their DaemonSet or its pods are
// created again.
func (h *Host) checkTurn(ctx context.Context, r Request, p *plan) error {
	if r.Turn == "" || p.From == nil || p.Target.Kubeconfig == "" {
		return nil
	}

	api, err := h.API(p.Target)
	if err != nil {
		return err
	}

	switch turn, err := api.NodeAnnotation(ctx, p.Target.Node, v1alpha1.AnnotationAgentTurn); {
	case err != nil:
		return fmt.Errorf("%w: the Node cannot be read, nothing was changed: %w", ErrNotItsTurn, err)
	case turn != r.Turn:
		return fmt.Errorf("%w: this node has another agent, or one with other flags, which stays until the node's turn: kubectl evenkeel install",
			ErrNotItsTurn)
	}

	return nil
}

// description says how the kubelet was checked.
func (t Target) description() string {
	var seen []string
	if t.Healthz != "" {
		seen = append(seen, "healthy")
	}
	if t.Kubeconfig != "" {
		seen = append(seen, "node "+t.Node+" Ready")
	}
	if len(seen) == 0 {
		return ""
	}

	return ": " + strings.Join(seen, ", ")
}

// plan is the change to make, and what it was computed from.
type plan struct {
	change
	kubelet []string // the kubelet's command line, expanded
	start   command
	checked Checked
}

// done reports whether the unit is already as desired, on disk and in systemd.
func (p *plan) done(u Unit) bool {
	return same(p.From, p.To) && !u.NeedDaemonReload && slices.Contains(u.DropIns, p.DropIn) && u.ActiveState == "active"
}

// replaced reports whether the program at the path is not the one that runs, as
// after the upgrade of a package.
func (h *Host) replaced(u Unit, program string) bool {
	running, err := os.Stat(filepath.Join(h.Proc, fmt.Sprint(u.MainPID), "exe"))
	there, thereErr := os.Stat(program)
	return err == nil && thereErr == nil && !os.SameFile(running, there)
}

// plan checks everything and changes nothing.
func (h *Host) plan(ctx context.Context, u Unit, r Request) (*plan, error) {
	p := &plan{change: h.newChange(installing, u, r)}
	there, err := p.readFiles(h.FS)
	if err != nil {
		return nil, err
	}

	if there.trial != nil {
		return nil, fmt.Errorf("%s is left over from an install without a record: remove it, systemctl daemon-reload && systemctl "+
			"restart %s, and install again", p.Trial, u.Name)
	}

	p.From = there.lasting
	flags := r.Flags
	if p.From != nil {
		switch originOf(*p.From) {
		case foreign:
			return nil, fmt.Errorf("%s exists and was not written by evenkeel: rename it", p.DropIn)
		case edited:
			return nil, fmt.Errorf("%s was edited after evenkeel wrote it: move the changes to a file of your own, such as 95-local.conf beside "+
				"it, then evenkeel-agent uninstall --force, and install again", p.DropIn)
		}

		if r.Keep {
			if flags, err = flagsOf(*p.From); err != nil {
				return nil, err
			}
		}
	} else if stale, err := h.needsReload(u); err != nil {
		return nil, err
	} else if stale {
		return nil, fmt.Errorf("the files of %s changed after systemd read them: systemctl daemon-reload && systemctl restart %[1]s, check "+
			"that the kubelet is healthy, and install again", u.Name)
	}

	files, err := h.filesOf(u)
	if err != nil {
		return nil, err
	}
	if later := overriders(files, DropInName); len(later) > 0 {
		return nil, fmt.Errorf("%s would override evenkeel's %s: rename it so that it sorts before", strings.Join(later, ", "), DropInName)
	}
	if p.start, err = execStartOf(files); err != nil {
		return nil, fmt.Errorf("%s cannot be wrapped: %w", u.Name, err)
	}

	p.Prefix = p.start.prefix
	if p.Kubelet, err = u.kubelet(p.From != nil); err != nil {
		return nil, fmt.Errorf("%s cannot be wrapped: %w", u.Name, err)
	}
	if err := checkProgram(u, p.Kubelet, p.start.file); err != nil {
		return nil, err
	}
	if p.kubelet, err = u.expand(p.Kubelet, p.Prefix); err != nil {
		return nil, err
	}
	if p.checked, err = h.Check(ctx, flags, p.kubelet, false); err != nil {
		return nil, fmt.Errorf("the agent refuses the kubelet of %s: %w", u.Name, err)
	}

	agent, err := h.Place(true)
	if err != nil {
		return nil, err
	}

	p.Target, p.Agent = p.checked.Target, append([]string{agent}, flags...)
	to, err := render(agent, flags, p.checked.Limits, p.start)
	p.To = &to

	return p, err
}

// needsReload reports whether the unit's files changed after systemd read them.
// systemd itself does not notice a drop-in in a new directory.
func (h *Host) needsReload(u Unit) (bool, error) {
	files, err := filepath.Glob(filepath.Join(h.UnitDir, u.Name+".d", "*.conf"))
	return u.NeedDaemonReload || slices.ContainsFunc(files, func(f string) bool { return !slices.Contains(u.DropIns, f) }), err
}

// filesOf returns the files of a unit in the order of systemd, without our
// drop-ins.
func (h *Host) filesOf(u Unit) ([]file, error) {
	var files []file
	for _, name := range append([]string{u.Fragment}, u.DropIns...) {
		if name == h.DropIn(u.Name) || name == h.trial(u.Name) || name == "" {
			continue
		}

		data, err := readUnitFile(name)
		if err != nil {
			return nil, fmt.Errorf("file of %s: %w", u.Name, err)
		}

		files = append(files, file{name, data})
	}

	return files, nil
}

// expand expands the variables in a unit's command line.
func (u Unit) expand(argv []string, prefix string) ([]string, error) {
	if strings.Contains(prefix, ":") {
		return argv, nil
	}

	env, err := environment(u.Environment, u.EnvironmentFiles)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Name, err)
	}

	return expand(argv, env), nil
}

// kubelet returns the kubelet's command line, with variables not expanded. If
// the agent is installed, it removes the agent's part.
func (u Unit) kubelet(installed bool) ([]string, error) {
	if len(u.Exec) != 1 || len(u.Exec[0]) == 0 {
		return nil, fmt.Errorf("systemd has %d ExecStart= commands for it, not one", len(u.Exec))
	}

	words := u.Exec[0]
	if i := slices.Index(words, "--"); installed && isAgent(words[0]) && i > 0 && i+1 < len(words) {
		words = words[i+1:]
	}

	return words, nil
}

func isAgent(program string) bool { return strings.HasPrefix(filepath.Base(program), "evenkeel-agent") }

// checkHealthyBefore refuses a node that is not healthy: the health after the
// install would prove nothing.
func (h *Host) checkHealthyBefore(ctx context.Context, u Unit, t Target) error {
	const nothing = "nothing was changed; fix that first, then install"
	if !u.Running() {
		return fmt.Errorf("%s is %s before the install: %s", u.Name, u.state(), nothing)
	}
	if err := h.healthz(ctx, t); err != nil {
		return fmt.Errorf("the kubelet of %s is not healthy before the install (%w): %s", u.Name, err, nothing)
	}
	if t.Kubeconfig == "" {
		return nil
	}

	api, err := h.API(t)
	if err != nil {
		return err
	}

	switch state := api.Snapshot(ctx, t.Node); {
	case !state.Reachable:
		return fmt.Errorf("cannot see whether node %s is Ready (%s): %s", t.Node, state.Cause, nothing)
	case !state.Exists:
		return fmt.Errorf("Node %s does not exist in the API: set the name under which the kubelet registers (-- --node-name=NAME): %s", t.Node,
			nothing)
	case !state.Ready:
		return fmt.Errorf("node %s is not Ready before the install: %s", t.Node, nothing)
	}

	return nil
}

// checkPods refuses a restart of the kubelet that would cost pods. A starting
// kubelet admits all pods of its node again.
func (r Request) checkPods(ctx context.Context, checked Checked) error {
	const nothing = "nothing was changed"
	if r.AllowPodLoss || checked.Losses == nil {
		return nil
	}

	lost, err := checked.Losses(ctx)
	if err != nil {
		return fmt.Errorf("cannot tell whether the pods of node %s survive a restart of its kubelet (%w): %s; --allow-pod-loss restarts it "+
			"anyway", checked.Target.Node, err, nothing)
	}

	if lost != "" {
		return fmt.Errorf("a restart of the kubelet would end pods of node %s: %s: %s; correct the cause, move the pods to other nodes, or use "+
			"--allow-pod-loss", checked.Target.Node, lost, nothing)
	}

	return nil
}

func (h *Host) healthz(ctx context.Context, t Target) error {
	if t.Healthz == "" {
		return nil
	}

	return h.Healthy(ctx, t.Healthz)
}

// volatileWarning says what a reboot does where the directory of unit files is
// in memory.
func (h *Host) volatileWarning() string {
	return h.UnitDir + " is in memory: after a reboot the node runs its plain kubelet. Install again at each boot, as the pod of the " +
		"installer does, or add the output of --dry-run to what creates the directory"
}

// describe returns the output of a dry run.
func (h *Host) describe(u Unit, p *plan) string {
	var out strings.Builder
	warnings := p.checked.Warnings
	if h.Volatile(h.UnitDir) {
		warnings = append(slices.Clone(warnings), h.volatileWarning())
	}

	for _, w := range warnings {
		fmt.Fprintf(&out, "# warning: %s\n", w)
	}

	fmt.Fprintf(&out, "# The kubelet of %s, from %s: %s\n", u.Name, p.start.file, strings.Join(p.kubelet, " "))
	verb := "written"
	if p.From != nil {
		verb = "replaced"
	}

	fmt.Fprintf(&out, "# This would be tried from %s: systemctl daemon-reload, systemctl restart %s. When the kubelet is healthy again %s\n"+
		"# would be %s. Nothing was changed.\n\n%s", h.TrialDir, u.Name, p.DropIn, verb, *p.To)

	return out.String()
}
