// Package machine boots the real systemd as the first process of namespaces of its own: processes, mounts, cgroups. It
// shares the files of this machine, but for /run, the unit directories and the cgroup, which are its own.
//
// It must not know what units are for.
package machine

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// ErrNone means that this machine cannot have another one in it; the error that wraps it says why.
var ErrNone = errors.New("no machine with systemd can run here")

//go:embed boot.sh
var boot string

// Where systemd looks for units, by precedence. They are the machine's own: see Path.
const (
	Etc = "/etc/systemd/system"
	Run = "/run/systemd/system"
	Lib = "/usr/lib/systemd/system"
)

// targets are those that services need, by default or as a kubelet's does. The first is what the machine boots to.
var targets = []string{"machine", "sysinit", "basic", "shutdown", "network-online", "multi-user", "sockets"}

// The system bus: its policy, which Policy adds to, is that everybody may do everything.
const (
	busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="true"/><allow receive_sender="*"/></policy>
  %s
</busconfig>
`
	busSocket = "[Socket]\nListenStream=/run/dbus/system_bus_socket\n"
	busUnit   = `[Unit]
Requires=dbus.socket
[Service]
Type=notify
ExecStart=%s --config-file=/run/dbus/system.conf --address=systemd: --nofork --nopidfile
ExecReload=/bin/kill -HUP $MAINPID
`
)

// programs are what a machine is made of.
var programs = []string{"unshare", "nsenter", "mount", "systemctl", "busctl"}

// View is by which paths systemd knows the unit directories.
type View bool

const (
	Inside  View = false // /etc/systemd/system and so on: for programs that run on the machine
	Outside View = true  // those that they have outside of it: for a test that is systemd's client from there
)

// Machine is a machine that runs.
type Machine struct {
	dir     string
	cgroups []string
	cmd     *exec.Cmd
	done    <-chan struct{}
	init    int
}

// Start boots a machine whose own files, and what systemd says, are in dir, which must be short: it holds sockets. Cgroups
// are those of the host that its programs may use. Stop ends it, and so does the end of this process. The error wraps
// ErrNone where none can run.
func Start(ctx context.Context, dir string, view View, cgroups ...string) (*Machine, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: it needs root", ErrNone)
	}
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNone, err)
		}
	}
	systemd := "/usr/lib/systemd/systemd"
	if _, err := os.Stat(systemd); err != nil {
		if systemd, err = exec.LookPath("/lib/systemd/systemd"); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNone, err)
		}
	}
	m := &Machine{dir: dir}
	for _, d := range []string{Etc, Run, Lib} {
		if err := os.MkdirAll(m.Path(d), 0o755); err != nil {
			return nil, err
		}
	}
	for _, name := range targets {
		if err := os.WriteFile(m.Path(Lib+"/"+name+".target"), []byte("[Unit]\nDescription="+name+"\n"), 0o644); err != nil {
			return nil, err
		}
	}
	if err := m.makeBus(); err != nil {
		return nil, err
	}
	if err := m.makeCgroups(len(cgroups) > 0); err != nil {
		return nil, errors.Join(err, m.removeCgroups())
	}
	if err := m.start(systemd, view, cgroups); err != nil {
		return nil, errors.Join(err, m.removeCgroups())
	}
	if err := m.waitForBoot(ctx); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// makeBus has systemd start the system bus, as it does on every node.
func (m *Machine) makeBus() error {
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNone, err)
	}
	return errors.Join(
		os.MkdirAll(m.Path("/run/dbus"), 0o755), m.writeBusConfig(""),
		os.WriteFile(m.Path(Lib+"/dbus.socket"), []byte(busSocket), 0o644),
		os.WriteFile(m.Path(Lib+"/dbus.service"), fmt.Appendf(nil, busUnit, daemon), 0o644),
		os.MkdirAll(m.Path(Lib+"/machine.target.wants"), 0o755),
		os.Symlink("../dbus.service", m.Path(Lib+"/machine.target.wants/dbus.service")),
	)
}

func (m *Machine) writeBusConfig(policy string) error {
	return os.WriteFile(m.Path("/run/dbus/system.conf"), fmt.Appendf(nil, busConfig, policy), 0o644)
}

// Policy lays a policy of the bus, a <policy> element of its configuration, over the one that allows everything. An
// empty one takes it away.
func (m *Machine) Policy(ctx context.Context, policy string) error {
	if err := m.writeBusConfig(policy); err != nil {
		return err
	}
	_, err := m.busctl(ctx, "call", "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "ReloadConfig")
	return err
}

func (m *Machine) busctl(ctx context.Context, args ...string) (string, error) {
	out, err := m.Command(ctx, "busctl", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("busctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// makeCgroups makes the cgroup that is the machine's root of all cgroups: with controllers of the first version in each of
// their hierarchies, else where systemd has its own.
func (m *Machine) makeCgroups(controllers bool) error {
	hierarchies := []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"}
	if entries, err := os.ReadDir("/sys/fs/cgroup"); err != nil {
		return fmt.Errorf("%w: %w", ErrNone, err)
	} else if _, second := os.Stat("/sys/fs/cgroup/cgroup.procs"); controllers && second != nil {
		for _, e := range entries {
			hierarchies = append(hierarchies, filepath.Join("/sys/fs/cgroup", e.Name()))
		}
	}
	slices.Sort(hierarchies)
	for _, h := range slices.Compact(hierarchies) {
		if _, err := os.Stat(filepath.Join(h, "cgroup.procs")); err != nil {
			continue
		}
		path := filepath.Join(h, fmt.Sprintf("evkmachine-%d-%s", os.Getpid(), filepath.Base(m.dir)))
		if err := os.Mkdir(path, 0o755); err != nil {
			return fmt.Errorf("%w: %w", ErrNone, err)
		}
		m.cgroups = append(m.cgroups, path)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // without, nothing can run in a cpuset of the first version
			if data, err := os.ReadFile(filepath.Join(h, file)); err == nil {
				_ = os.WriteFile(filepath.Join(path, file), data, 0o644) // then joining it fails, which says so
			}
		}
	}
	if len(m.cgroups) == 0 {
		return fmt.Errorf("%w: no cgroups are mounted", ErrNone)
	}
	return nil
}

func (m *Machine) start(systemd string, view View, cgroups []string) error {
	var units []string
	for _, d := range []string{Etc, Run, Lib} {
		if view == Outside {
			d = m.Path(d)
		}
		units = append(units, d)
	}
	units = append(units, "/run/systemd/transient") // where systemd itself puts those that are made over D-Bus
	log, err := os.OpenFile(m.Log(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	script := `for c in $CGROUPS; do echo 0 >"$c/cgroup.procs"; done
		exec unshare --kill-child --fork --pid --mount --cgroup --ipc --uts /bin/sh -c "$BOOT"`
	m.cmd = exec.Command("/bin/sh", "-ec", script)
	m.cmd.Env = append(os.Environ(), "DIR="+m.dir, "CGROUPS="+strings.Join(m.cgroups, " "), "BOOT="+boot, "SYSTEMD="+systemd, "UNITS="+strings.Join(units, ":"), "SHARED="+strings.Join(cgroups, " "))
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.done, err = localcluster.Begin(m.cmd)
	return err
}

// bootTime is how long a boot may take.
const bootTime = 30 * time.Second

// waitForBoot waits until systemd answers.
func (m *Machine) waitForBoot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if m.findInit() {
			if _, err := m.busctl(ctx, "status", "org.freedesktop.systemd1"); err == nil { // it has a name on the bus
				return nil
			}
		}
		select {
		case <-m.done:
			return fmt.Errorf("%w: systemd ended: %s", ErrNone, m.said())
		case <-ctx.Done():
			return fmt.Errorf("%w: systemd does not answer within %s: %s", ErrNone, bootTime, m.said())
		case <-tick.C:
		}
	}
}

// findInit finds the machine's first process: the child of unshare.
func (m *Machine) findInit() bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", m.cmd.Process.Pid))
	if err != nil {
		return false
	}
	_, err = fmt.Sscan(string(raw), &m.init)
	return err == nil
}

// said is the end of what systemd said.
func (m *Machine) said() string {
	raw, err := os.ReadFile(m.Log())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(raw[max(0, len(raw)-2000):]))
}

// Log is the file with what systemd and its services say.
func (m *Machine) Log() string { return filepath.Join(m.dir, "machine.log") }

// Path is where a file of the machine's own, in /run or a unit directory, is outside of it.
func (m *Machine) Path(inside string) string { return filepath.Join(m.dir, inside) }

// Proc is the machine's /proc, as it is outside of it.
func (m *Machine) Proc() string { return fmt.Sprintf("/proc/%d/root/proc", m.init) }

// Bus is the socket of the system bus.
func (m *Machine) Bus() string { return m.Path("/run/dbus/system_bus_socket") }

// Command is a program that is to run on the machine.
func (m *Machine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{
		"--target", fmt.Sprint(m.init), "--pid", "--mount", "--cgroup", "--ipc", "--uts", "--", name,
	}, args...)...)
}

// Systemctl runs systemctl on the machine and returns what it said.
func (m *Machine) Systemctl(ctx context.Context, args ...string) (string, error) {
	out, err := m.Command(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// Stop ends the machine as a power cut does, and removes its cgroup. Calling it again does nothing.
func (m *Machine) Stop() error {
	_ = m.cmd.Process.Kill() // and with unshare all that runs in its namespaces
	<-m.done
	return m.removeCgroups()
}

// removeCgroups waits for the last process to be gone.
func (m *Machine) removeCgroups() error {
	var errs []error
	for _, root := range m.cgroups {
		deadline := time.Now().Add(10 * time.Second)
		for {
			err := removeTree(root)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				errs = append(errs, err)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	m.cgroups = nil
	return errors.Join(errs...)
}

// removeTree removes a cgroup and those in it.
func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		if removed := os.Remove(dirs[i]); removed != nil && err == nil {
			err = removed
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
