// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// errKilled is the panic of a killed run.
var errKilled = errors.New("killed")

// run is Install or Uninstall.
type run func(*Host, context.Context, Request) (string, error)

// killed makes a run and kills it before step at; false: it has fewer steps.
func (m *model) killed(at int, do run, r Request) (was bool, err error) {
	m.steps, m.killAt = 0, at
	m.disk.BeforeEach(m.step)
	defer func() {
		m.killAt = 0
		if r := recover(); r == errKilled {
			was = true
		} else if r != nil {
			panic(r)
		}
	}()

	return false, assert.Err(do(&m.Host, m.t.Context(), r))
}

// step is called before each change on disk, and before and after each in
// systemd.
func (m *model) step() {
	if m.steps++; m.killAt > 0 && m.steps >= m.killAt { // also of what is deferred
		panic(errKilled)
	}
}

// bad is a flag with which an agent exits.
const bad = "--bad"

// model simulates systemd with one unit: what it has read, and what it has
// started. The files that change are on a disk that loses power; a real
// directory has the lock, the programs and the kubelet's own unit.
type model struct {
	Host
	t    *testing.T
	dir  string
	disk *crashfs.FS

	read       []string // the unit's command line, as of the last reload
	dropIns    []string // and its drop-ins
	guard      []string // the command that waits for the installer's end; nil: none
	running    []string // that of what runs; nil: it is in a crash loop
	invocation int

	steps, killAt int // the step before which the run is killed; 0: none
}

// newModel returns a node whose unit runs a plain kubelet. Models can use the
// same directory one after another.
func newModel(t *testing.T, dir string) *model {
	t.Helper()
	m := &model{t: t, dir: dir, disk: crashfs.New()}
	kubelet := filepath.Join(m.dir, "kubelet")
	m.Host = Host{
		Manager: m,
		Check: func(context.Context, []string, []string, bool) (Checked, error) {
			return Checked{Target: Target{Node: "n", Healthz: "here"}}, nil
		},
		Healthy: func(context.Context, string) error {
			if m.running == nil {
				return errors.New("nobody answers")
			}

			return nil
		},
		Journal:  func(context.Context, Unit) string { return "" },
		Volatile: func(string) bool { return false },
		Place:    func(bool) (string, error) { return filepath.Join(m.dir, "evenkeel-agent"), nil },
		FS:       m.disk, UnitDir: filepath.Join(m.dir, "etc"), TrialDir: filepath.Join(m.dir, "run"), StateDir: filepath.Join(m.dir, "record"), Proc: filepath.Join(m.dir, "proc"),
		Out: t.Output(),
	}
	for _, dir := range []string{m.UnitDir, m.TrialDir} {
		m.disk.PlantDir(dir, 0o755)
	}

	err := errors.Join(os.MkdirAll(m.StateDir, 0o700), os.MkdirAll(filepath.Join(m.Proc, "1"), 0o755), os.WriteFile(kubelet, []byte("\x7fELF"), 0o755), os.WriteFile(filepath.Join(m.dir, "evenkeel-agent"), nil, 0o755),
		os.WriteFile(m.fragment(), []byte("[Service]\nExecStart="+kubelet+" --v=2 $MORE\n"), 0o644))
	assert.NoError(t, err)
	m.boots()

	return m
}

func (m *model) fragment() string { return filepath.Join(m.dir, "kubelet.service") }

// onDisk returns the command line in the unit's files, and the drop-ins.
func (m *model) onDisk() (argv, dropIns []string) {
	own := assert.Value(os.ReadFile(m.fragment()))(m.t)
	files := []file{{m.fragment(), own}}
	for _, path := range []string{m.DropIn("kubelet.service"), m.trial("kubelet.service")} {
		if data, err := m.disk.ReadFile(path); err == nil {
			files, dropIns = append(files, file{path, data}), append(dropIns, path)
		}
	}

	c := assert.Value(execStartOf(files))(m.t)

	return strings.Fields(c.text), dropIns
}

// starts starts the unit as systemd has read it.
func (m *model) starts() {
	m.invocation++
	m.running = m.read
	if slices.Contains(m.read, bad) {
		m.running = nil
	}

	line := strings.Join(m.running, "\x00") + "\x00"
	assert.NoError(m.t, os.WriteFile(filepath.Join(m.Proc, "1", "cmdline"), []byte(line), 0o644))
}

func (m *model) boots() {
	m.read, m.dropIns = m.onDisk()
	m.starts()
}

// Events after a run was killed, besides a power cut, which has a name of
// crashfs.Choices.
const (
	nothing = "nothing"
	guarded = "its guard"
)

// befalls simulates an event, and requires that the node then has a kubelet.
func (m *model) befalls(what string) {
	m.t.Helper()
	choice, cut := crashfs.Choices[what]
	if cut {
		m.disk = m.disk.Reboot(choice)
		m.FS = m.disk
	}

	if cut || what == guarded && m.guard != nil {
		m.clear(m.TrialDir)
		m.boots()
	}

	assert.That(m.t, what == nothing || m.running != nil, "after %s the node has no kubelet", what)
	if what != nothing {
		m.guard = nil
	}
}

// clear removes what is in a directory of the disk.
func (m *model) clear(dir string) {
	m.t.Helper()
	for _, path := range m.paths(dir) {
		assert.NoError(m.t, m.disk.Remove(path))
	}
}

// paths returns what is below a directory of the disk; what is in a directory
// comes before it.
func (m *model) paths(dir string) []string {
	m.t.Helper()
	entries := assert.Value(m.disk.ReadDir(dir))(m.t)
	var paths []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			paths = append(paths, m.paths(path)...)
		}

		paths = append(paths, path)
	}

	return paths
}

func (m *model) Unit(context.Context, string) (Unit, error) {
	now, _ := m.onDisk()
	u := Unit{
		DropIns: m.dropIns,
		Name:    "kubelet.service", LoadState: "loaded", ActiveState: "active", SubState: "running", Fragment: m.fragment(), MainPID: 1,
		NeedDaemonReload: !slices.Equal(m.read, now), Invocation: fmt.Sprint(m.invocation), Exec: [][]string{m.read},
	}
	if m.running == nil {
		u.ActiveState, u.SubState = "activating", "auto-restart"
	}

	return u, nil
}

func (m *model) Kubelets(context.Context) ([]string, error) { return nil, nil }

func (m *model) Reload(context.Context) error {
	m.step()
	defer m.step()
	m.read, m.dropIns = m.onDisk()
	return nil
}

func (m *model) StartTransient(_ context.Context, _, _ string, _, argv []string) error {
	m.step()
	defer m.step()
	m.guard = argv
	return nil
}

func (m *model) Stop(context.Context, string) error {
	m.step()
	defer m.step()
	m.guard = nil
	return nil
}

func (m *model) Restart(context.Context, string) error {
	m.step()
	defer m.step()
	m.starts()
	if m.running == nil {
		return errors.New("the job has failed")
	}

	return nil
}

func (m *model) request() Request {
	return Request{Unit: "kubelet", Keep: true, Timing: Timing{Timeout: 20 * time.Second, HealthyFor: time.Microsecond, Poll: time.Millisecond}}
}

// tree lists what is on the disk, without the record.
func (m *model) tree() string {
	all := slices.Concat(m.paths(m.UnitDir), m.paths(m.TrialDir), m.paths(m.StateDir))
	all = slices.DeleteFunc(all, func(path string) bool { return path == m.record("kubelet.service") })
	return strings.Join(all, "\n")
}

// good requires that each drop-in is complete or absent.
func (m *model) good() {
	m.t.Helper()
	for _, path := range []string{m.DropIn("kubelet.service"), m.trial("kubelet.service")} {
		raw, err := m.disk.ReadFile(path)
		assert.That(m.t, (err == nil || errors.Is(err, fs.ErrNotExist)) && (err != nil || originOf(string(raw)) == ours), "%s is %q, %v", path, raw, err)
	}
}

func TestKilledRunIsCompletedOrTakenBackByTheNext(t *testing.T) {
	install, uninstall := (*Host).Install, (*Host).Uninstall
	for _, tt := range []struct {
		name     string
		before   []string // the agent's flags of an install before; nil: there was none
		do, next run      // what is killed, and what is run then
		flags    []string
		fails    bool     // what is run then
		wrapped  []string // in the end, with which flags; nil: it is not
	}{
		{"install", nil, install, install, []string{"--a"}, false, []string{"--a"}},
		{"install, then uninstall", nil, install, uninstall, []string{"--a"}, false, nil},
		{"install of an agent that exits", nil, install, install, []string{bad}, true, nil},
		{"install of an agent that exits, then uninstall", nil, install, uninstall, []string{bad}, false, nil},
		{"upgrade", []string{"--a"}, install, install, []string{"--b"}, false, []string{"--b"}},
		{"upgrade to an agent that exits", []string{"--a"}, install, install, []string{bad}, true, []string{"--a"}},
		{"upgrade to an agent that exits, then uninstall", []string{"--a"}, install, uninstall, []string{bad}, false, nil},
		{"uninstall", []string{"--a"}, uninstall, uninstall, nil, false, nil},
		{"uninstall, then install", []string{"--a"}, uninstall, install, []string{"--a"}, false, []string{"--a"}},
	} {
		for _, befalls := range []string{nothing, guarded, "all lost", "all kept", "data torn", "seeded dice"} {
			t.Run(tt.name+", upon which comes "+befalls, func(t *testing.T) {
				dir := t.TempDir()
				for at := 1; ; at++ {
					m := newModel(t, dir)
					left, r := "", m.request()
					if tt.wrapped != nil {
						left = m.DropIn("kubelet.service") + "\n" + filepath.Dir(m.DropIn("kubelet.service"))
					}

					if tt.before != nil {
						r.Flags, r.Keep = tt.before, false
						assert.NoError(t, assert.Err(m.Install(t.Context(), r)))
					}

					r.Flags, r.Keep = tt.flags, false
					was, err := m.killed(at, tt.do, r)
					if was {
						m.good()
						m.befalls(befalls)
						_, err = tt.next(&m.Host, t.Context(), r)
					} else if at < 10 {
						t.Errorf("only %d steps", at-1)
					}

					fails := tt.fails || !was && slices.Contains(tt.flags, bad)
					assert.Must(t, fails == errors.Is(err, ErrTakenBack) && (fails || err == nil), "killed before step %d, then: %v", at, err)
					want := []string{m.dir + "/kubelet", "--v=2", "$MORE"}
					if tt.wrapped != nil {
						want = slices.Concat([]string{m.dir + "/evenkeel-agent"}, tt.wrapped, []string{"--"}, want)
					}

					now, _ := m.onDisk()
					assert.That(t, (!was || slices.Equal(m.running, want)) && slices.Equal(m.read, m.running) && slices.Equal(m.read, now),
						"killed before step %d: it runs %q, has read %q, want %q", at, m.running, m.read, want)
					assert.That(t, !was || m.tree() == left, "killed before step %d: left\n%s\nwant\n%s", at, m.tree(), left)

					assert.That(t, m.guard == nil, "killed before step %d: a guard is left", at)
					if !was {
						t.Logf("%d steps", at-1)
						return
					}
				}
			})
		}
	}
}

// killedOnTrial returns the state after an install was killed when it had just
// written its drop-in, and had no guard.
func killedOnTrial(t *testing.T) *model {
	t.Helper()
	dir := t.TempDir()
	for at := 1; ; at++ {
		m := newModel(t, dir)
		was, _ := m.killed(at, (*Host).Install, m.request())
		assert.Must(t, was, "no step with a drop-in")
		if _, err := m.disk.Lstat(m.trial("kubelet.service")); err == nil {
			m.guard = nil
			return m
		}
	}
}

func TestKilledUninstallAfterKilledInstallIsCompleted(t *testing.T) {
	for at, was := 1, true; was; at++ {
		m := killedOnTrial(t)
		was, _ = m.killed(at, (*Host).Uninstall, m.request())
		if was {
			assert.NoError(t, assert.Err(m.Uninstall(t.Context(), m.request())), "killed before step", at, "then")
		} else if at < 5 {
			t.Errorf("only %d steps", at-1)
		}

		now, dropIns := m.onDisk()
		assert.That(t, slices.Equal(m.running, now) && len(dropIns) == 0 && !strings.Contains(m.tree(), "kubelet.service.d"),
			"killed before step %d: it runs %q, and the files are\n%s", at, m.running, m.tree())
	}
}

func TestInterruptedInstallDoesNotContinueOverEditedFile(t *testing.T) {
	m := killedOnTrial(t)
	path := m.trial("kubelet.service")
	m.disk.Plant(path, []byte("# mine\n"))
	_, err := m.Install(t.Context(), m.request())
	want := path + " was changed since by someone else: edit it as needed, remove " + filepath.Join(m.StateDir, "kubelet.service.json") + ", and run the command again"
	raw, _ := m.disk.ReadFile(path)
	assert.That(t, err != nil && strings.Contains(err.Error(), want) && string(raw) == "# mine\n", "error %v, want %q; the file holds %q", err, want, raw)
}

// A pod that starts again after a power cut must not try again what may have
// cost the node its kubelet.
func TestInterruptedAttemptIsNotRepeated(t *testing.T) {
	dir, refused := t.TempDir(), 0
	for at, was := 1, true; was; at++ {
		m := newModel(t, dir)
		r := m.request()
		r.Attempt = "pod-1"
		if was, _ = m.killed(at, (*Host).Install, r); !was {
			break
		}

		m.befalls("all kept")
		_, err := m.Install(t.Context(), r)
		if errors.Is(err, ErrTakenBack) {
			refused++
			assert.That(t, strings.Contains(err.Error(), "this attempt (pod-1) has failed before and is not repeated: begun ") && m.tree() == "",
				"killed before step %d: %v; left %s", at, err, m.tree())

			r.Attempt = "pod-2"
			_, err = m.Install(t.Context(), r)
		}

		_, dropIns := m.onDisk()
		assert.That(t, err == nil && slices.Equal(dropIns, []string{m.DropIn("kubelet.service")}), "killed before step %d, then: %v; drop-ins %q", at, err, dropIns)
	}

	assert.That(t, refused >= 5, "the attempt was refused after %d kills", refused)
}

func TestLeftoversOfEarlierRunsAreRemoved(t *testing.T) {
	for name, do := range map[string]run{"install": (*Host).Install, "uninstall": (*Host).Uninstall} {
		m := newModel(t, t.TempDir())
		assert.NoError(t, assert.Err(do(&m.Host, t.Context(), m.request())))
		want := m.tree()
		for _, path := range []string{m.DropIn("kubelet.service") + ".room.tmp", m.trial("kubelet.service") + ".01234567.tmp", m.record("kubelet.service") + ".01234567.tmp"} {
			m.disk.Plant(path, []byte("half"))
		}

		mine := m.DropIn("kubelet.service") + ".mine"
		m.disk.Plant(mine, nil)
		words, err := do(&m.Host, t.Context(), m.request())
		assert.That(t, err == nil && strings.Contains(words, "nothing to do"), "%s: %q, %v", name, words, err)
		assert.NoError(t, m.disk.Remove(mine), name, "a file of another author")
		for _, dir := range []string{m.DropIn("kubelet.service"), m.trial("kubelet.service")} {
			_ = m.disk.Remove(filepath.Dir(dir)) // as it was planted; fails if it has files
		}

		assert.Equal(t, m.tree(), want, name, "left")
	}
}
