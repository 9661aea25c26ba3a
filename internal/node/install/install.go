package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/lockfile"
)

// ErrTakenBack says that the node was changed, did not come up healthy, and has what it had before.
var ErrTakenBack = errors.New("taken back")

// ErrBusy says that another run is at work.
var ErrBusy = errors.New("another install or uninstall is at work on this node")

// ErrNotItsTurn says that an agent that is there is to be changed, and that it is not this node's turn.
var ErrNotItsTurn = errors.New("not this node's turn")

// Request is what is asked for.
type Request struct {
	Unit    string   // name
	Flags   []string // of the agent
	Keep    bool     // no flags were given: those that a drop-in of ours has stay
	Attempt string   // names what was tried, so that it is not tried again; empty: always
	Turn    string   // that the Node must name before an agent that is there is changed; empty: whatever it names
	DryRun  bool
	Force   bool // of uninstall: also an edited drop-in, and with no way back
	Purge   bool // of uninstall: also what the agent remembers
	Pace    Pace
}

// DropIn is the path of a unit's drop-in.
func (h *Host) DropIn(unit string) string {
	return filepath.Join(h.UnitDir, unit+".d", DropInName)
}

// trial is the path under which it is tried.
func (h *Host) trial(unit string) string {
	return filepath.Join(h.TrialDir, unit+".d", trialName)
}

// load returns the record of a unit, nil if there is none.
func (h *Host) load(unit string) (*record, error) {
	rec, err := h.store().load(unit)
	if rec != nil {
		rec.Trial = h.trial(unit)
	}
	return rec, err
}

func (h *Host) store() store { return store{h.FS, h.StateDir} }

func (h *Host) say(format string, args ...any) { fmt.Fprintf(h.Out, format+"\n", args...) }

// Install puts the agent in front of a unit's kubelet. It returns what is to be said of it. An error that is not
// ErrTakenBack means that nothing was changed.
func (h *Host) Install(ctx context.Context, r Request) (string, error) {
	return h.locked(ctx, r, func() (string, error) { return h.install(ctx, r) })
}

// locked has do run while no other run is at work. A dry run writes nothing, not even a lock.
func (h *Host) locked(ctx context.Context, r Request, do func() (string, error)) (string, error) {
	if r.DryRun {
		return do()
	}
	if err := makeStateDir(h.StateDir); err != nil {
		return "", fmt.Errorf("directory for the record of what is done: %w", err)
	}
	lock, err := lockfile.TryAcquire(h.store().lock())
	if errors.Is(err, lockfile.ErrHeld) {
		return "", fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return "", err
	}
	defer lock.Release()
	return do()
}

func (h *Host) install(ctx context.Context, r Request) (string, error) {
	unit, err := h.unit(ctx, r.Unit)
	if err != nil {
		return "", err
	}
	before, err := h.load(unit.Name)
	if err != nil {
		return "", err
	}
	if before.open() {
		if r.DryRun {
			return "", fmt.Errorf("%s of %s was interrupted (begun %s): run it, or uninstall, to have it completed or taken back first", before.Operation, unit.Name, before.Begun.Format(time.RFC3339))
		}
		if err := h.resume(ctx, before, r.Pace); err != nil {
			return "", err
		}
		if unit, err = h.unit(ctx, r.Unit); err != nil {
			return "", err
		}
	}
	if err := before.repeats(installing, r.Attempt); err != nil {
		return "", err
	}
	p, err := h.plan(ctx, unit, r)
	if err != nil {
		return "", err
	}
	if p.done(unit) && !h.replaced(unit, p.agent) {
		return fmt.Sprintf("evenkeel-agent runs the kubelet of %s already (%s): nothing to do", unit.Name, p.path), nil
	}
	if !r.DryRun {
		if err := h.itsTurn(ctx, r, p); err != nil {
			return "", err
		}
	}
	if err := h.healthyBefore(ctx, unit, p.checked.Target); err != nil {
		return "", err
	}
	if r.DryRun {
		return h.describe(unit, p), nil
	}
	if _, err := h.Place(false); err != nil {
		return "", err
	}
	rec := &record{
		Version: recordVersion, Operation: installing, Unit: unit.Name, Attempt: r.Attempt, Begun: time.Now().UTC(),
		DropIn: p.path, Trial: h.trial(unit.Name), From: p.from, To: &p.to, Invocation: unit.Invocation, Healthy: true, Target: p.checked.Target,
		Agent: append([]string{p.agent}, p.flags...), Kubelet: p.words, Prefix: p.start.prefix,
	}
	if err := h.begin(ctx, rec, r.Pace); err != nil {
		return "", err
	}
	return fmt.Sprintf("evenkeel-agent runs the kubelet of %s%s", unit.Name, rec.Target.words()), nil
}

// itsTurn returns ErrNotItsTurn if an agent that is there is to be changed and nobody has said so. An installer may come to
// many nodes at once, with another agent or other flags than they have: it was deleted and made anew, or its pods were.
func (h *Host) itsTurn(ctx context.Context, r Request, p *plan) error {
	if r.Turn == "" || p.from == nil || p.checked.Target.Kubeconfig == "" {
		return nil
	}
	api, err := h.API(p.checked.Target)
	if err != nil {
		return err
	}
	switch turn, err := api.Turn(ctx); {
	case err != nil:
		return fmt.Errorf("%w: whose it is cannot be seen, nothing was changed: %w", ErrNotItsTurn, err)
	case turn != r.Turn:
		return fmt.Errorf("%w: another agent, or one with other flags, is here, and stays until it is: kubectl evenkeel install", ErrNotItsTurn)
	}
	return nil
}

// words say what was seen of a kubelet.
func (t Target) words() string {
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

// plan is what is to be done to a node, and what it was found from.
type plan struct {
	path    string // of the drop-in
	from    *string
	to      string
	agent   string // path
	flags   []string
	words   []string // the kubelet's command line as systemd reads it
	kubelet []string // the same, expanded
	start   command
	checked Checked
}

// done tells that the unit is as it is wanted already, on disk and in systemd.
func (p *plan) done(u Unit) bool {
	return p.from != nil && *p.from == p.to && !u.NeedDaemonReload && slices.Contains(u.DropIns, p.path) && u.ActiveState == "active"
}

// replaced tells that another program is there than the one that runs: a package has brought the next one.
func (h *Host) replaced(u Unit, program string) bool {
	running, err := os.Stat(filepath.Join(h.Proc, fmt.Sprint(u.MainPID), "exe"))
	there, thereErr := os.Stat(program)
	return err == nil && thereErr == nil && !os.SameFile(running, there)
}

// plan looks at everything, and changes nothing.
func (h *Host) plan(ctx context.Context, u Unit, r Request) (*plan, error) {
	p := &plan{path: h.DropIn(u.Name)}
	var err error
	if p.from, err = readDropIn(h.FS, p.path); err != nil {
		return nil, err
	}
	if trial, err := readDropIn(h.FS, h.trial(u.Name)); err != nil || trial != nil {
		return nil, cmp.Or(err, fmt.Errorf("%s is left of an install of which nothing is known any more: remove it, systemctl daemon-reload && systemctl restart %s, and install again", h.trial(u.Name), u.Name))
	}
	p.flags = r.Flags
	if p.from != nil {
		switch originOf(*p.from) {
		case foreign:
			return nil, fmt.Errorf("%s is there and is not evenkeel's: move it to another name", p.path)
		case edited:
			return nil, fmt.Errorf("%s was edited since evenkeel wrote it: move the changes to a file of your own, such as 95-local.conf beside it, then evenkeel-agent uninstall --force, and install again", p.path)
		}
		if r.Keep {
			if p.flags, err = flagsOf(*p.from); err != nil {
				return nil, err
			}
		}
	} else if unread, err := h.unread(u); err != nil {
		return nil, err
	} else if unread {
		return nil, fmt.Errorf("the files of %s are not what systemd has read: systemctl daemon-reload && systemctl restart %[1]s, see that the kubelet is well, and install again", u.Name)
	}
	files, err := h.filesOf(u)
	if err != nil {
		return nil, err
	}
	if later := overriders(files, DropInName); len(later) > 0 {
		return nil, fmt.Errorf("%s would win over evenkeel's %s: give it a name that sorts before that", strings.Join(later, ", "), DropInName)
	}
	if p.start, err = startOf(files); err != nil {
		return nil, fmt.Errorf("%s cannot be wrapped: %w", u.Name, err)
	}
	if err = h.kubelet(u, p); err != nil {
		return nil, err
	}
	if p.checked, err = h.Check(ctx, p.flags, p.kubelet); err != nil {
		return nil, fmt.Errorf("the agent would not take the kubelet of %s: %w", u.Name, err)
	}
	if p.agent, err = h.Place(true); err != nil {
		return nil, err
	}
	p.to, err = wrap{agent: p.agent, flags: p.flags, limits: p.checked.Limits, before: p.start}.render()
	return p, err
}

// unread tells that systemd has not read the unit's files as they are. It does not see itself a drop-in in a directory
// that was not there when it looked last.
func (h *Host) unread(u Unit) (bool, error) {
	files, err := filepath.Glob(filepath.Join(h.UnitDir, u.Name+".d", "*.conf"))
	return u.NeedDaemonReload || slices.ContainsFunc(files, func(f string) bool { return !slices.Contains(u.DropIns, f) }), err
}

// filesOf are the files of a unit in systemd's order, but for ours.
func (h *Host) filesOf(u Unit) ([]file, error) {
	var files []file
	for _, name := range append([]string{u.Fragment}, u.DropIns...) {
		if name == h.DropIn(u.Name) || name == h.trial(u.Name) || name == "" {
			continue
		}
		data, err := readFollowing(name)
		if err != nil {
			return nil, fmt.Errorf("file of %s: %w", u.Name, err)
		}
		files = append(files, file{name, data})
	}
	return files, nil
}

// kubelet finds the kubelet's command line, as systemd has read it and as it would be run.
func (h *Host) kubelet(u Unit, p *plan) error {
	if len(u.Exec) != 1 || len(u.Exec[0]) == 0 {
		return fmt.Errorf("%s cannot be wrapped: systemd has %d ExecStart= commands for it, not one", u.Name, len(u.Exec))
	}
	p.words = u.Exec[0]
	if p.from != nil {
		if inner := wrapped(p.words); inner != nil {
			p.words = inner
		}
	}
	if err := judgeProgram(u, p.words, p.start.file); err != nil {
		return err
	}
	var err error
	p.kubelet, err = u.expand(p.words, p.start.prefix)
	return err
}

// expand is what a unit's words are when it is run.
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

// wrapped is the kubelet's part of an agent's command line; nil if it is none.
func wrapped(argv []string) []string {
	if !isAgent(argv[0]) {
		return nil
	}
	if i := slices.Index(argv, "--"); i > 0 && i+1 < len(argv) {
		return argv[i+1:]
	}
	return nil
}

func isAgent(program string) bool { return strings.HasPrefix(filepath.Base(program), "evenkeel-agent") }

// healthyBefore refuses a node that does not work: whatever came of it afterwards would prove nothing.
func (h *Host) healthyBefore(ctx context.Context, u Unit, t Target) error {
	const nothing = "nothing was changed; mend that first, then install"
	if !u.Running() {
		return fmt.Errorf("%s is %s before anything was done: %s", u.Name, u.state(), nothing)
	}
	if err := h.healthz(ctx, t); err != nil {
		return fmt.Errorf("the kubelet of %s is not healthy before anything was done (%w): %s", u.Name, err, nothing)
	}
	if t.Kubeconfig == "" {
		return nil
	}
	api, err := h.API(t)
	if err != nil {
		return err
	}
	switch state := api.Snapshot(ctx); {
	case !state.Reachable:
		return fmt.Errorf("cannot see whether node %s is Ready (%s): %s", t.Node, state.Cause, nothing)
	case !state.Exists:
		return fmt.Errorf("there is no Node %s in the API: give the agent the name that the kubelet has (-- --node-name=NAME): %s", t.Node, nothing)
	case !state.Ready:
		return fmt.Errorf("node %s is not Ready before anything was done: %s", t.Node, nothing)
	}
	return nil
}

func (h *Host) healthz(ctx context.Context, t Target) error {
	if t.Healthz == "" {
		return nil
	}
	return h.Healthy(ctx, t.Healthz)
}

// describe is what a dry run says.
func (h *Host) describe(u Unit, p *plan) string {
	var out strings.Builder
	for _, w := range p.checked.Warnings {
		fmt.Fprintf(&out, "# warning: %s\n", w)
	}
	fmt.Fprintf(&out, "# The kubelet of %s, from %s: %s\n", u.Name, p.start.file, strings.Join(p.kubelet, " "))
	verb := "written"
	if p.from != nil {
		verb = "replaced"
	}
	fmt.Fprintf(&out, "# This would be tried from %s: systemctl daemon-reload, systemctl restart %s. When the kubelet is well again %s\n"+
		"# would be %s. Nothing was changed.\n\n%s", h.TrialDir, u.Name, p.path, verb, p.to)
	return out.String()
}
