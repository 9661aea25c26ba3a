// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine boots a real systemd for tests, as the first process of its
// own process, mount and cgroup namespaces. The "machine" shares this host's
// files, except for /run, the unit directories and its cgroup.
//
// The package must not know what units are for.
package machine

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// ErrUnsupported means that systemd cannot be booted on this host; the error
// that wraps it says why.
var ErrUnsupported = errors.New("systemd cannot be booted here")

//go:embed boot.sh
var boot string

// Unit directories of systemd, by precedence. The machine has its own ones: see
// Path.
const (
	Etc = "/etc/systemd/system"
	Run = "/run/systemd/system"
	Lib = "/usr/lib/systemd/system"
)

// targets are the targets that services depend on. The machine boots to the
// first one.
var targets = []string{"machine", "sysinit", "basic", "shutdown", "network-online", "multi-user", "sockets"}

// The system bus. By default everyone may do everything; Policy restricts that.
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

// programs are the required programs.
var programs = []string{"unshare", "nsenter", "mount", "systemctl", "busctl"}

// View says under which paths systemd sees the unit directories.
type View bool

// The views.
const (
	Inside  View = false // as /etc/systemd/system and so on, for programs that run on the machine
	Outside View = true  // under their paths on the host, for tests that are clients of systemd from there
)

// Machine is a running machine.
type Machine struct {
	dir     string
	cgroups []string
	cmd     *exec.Cmd
	done    <-chan struct{}
	init    int
}

// Start boots a machine with its own files and its log in dir, whose path must
// be short because it holds sockets. Its programs may use the given cgroups of
// the host. The machine ends with Stop, or with this process. The error wraps
// ErrUnsupported if this host lacks root, a program or cgroups.
func Start(ctx context.Context, dir string, view View, cgroups ...string) (_ *Machine, err error) {
	defer must.Catch(&err)

	must.That(os.Geteuid() == 0, "%w: it needs root", ErrUnsupported)
	for _, name := range programs {
		must.Get(find(name))
	}

	systemd := "/usr/lib/systemd/systemd"
	if _, err := os.Stat(systemd); err != nil {
		systemd = must.Get(find("/lib/systemd/systemd"))
	}

	m := &Machine{dir: dir}
	for _, d := range []string{Etc, Run, Lib} {
		must.OK(os.MkdirAll(m.Path(d), 0o755))
	}

	for _, name := range targets {
		must.OK(os.WriteFile(m.Path(Lib+"/"+name+".target"), []byte("[Unit]\nDescription="+name+"\n"), 0o644))
	}

	must.OK(m.makeBus())
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

// find finds a program. The error wraps ErrUnsupported.
func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}

	return path, err
}

// makeBus writes the units with which systemd starts the system bus.
func (m *Machine) makeBus() (err error) {
	defer must.Catch(&err)

	daemon := must.Get(find("dbus-daemon"))

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

// Policy adds a <policy> element to the configuration of the bus, which
// otherwise allows everything. An empty string removes it.
func (m *Machine) Policy(ctx context.Context, policy string) error {
	if err := m.writeBusConfig(policy); err != nil {
		return err
	}

	_, err := m.run(ctx, "busctl", "call", "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "ReloadConfig")

	return err
}

// makeCgroups makes the machine's root cgroup: with controllers of cgroup v1 in
// each of their hierarchies, otherwise only in those that systemd uses.
func (m *Machine) makeCgroups(controllers bool) (err error) {
	defer must.Catch(&err)

	hierarchies := []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"}
	entries, missing := os.ReadDir("/sys/fs/cgroup")
	must.That(missing == nil, "%w: %w", ErrUnsupported, missing)
	if _, second := os.Stat("/sys/fs/cgroup/cgroup.procs"); controllers && second != nil {
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
		failed := os.Mkdir(path, 0o755)
		must.That(failed == nil, "%w: %w", ErrUnsupported, failed)
		m.cgroups = append(m.cgroups, path)
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // an empty cpuset of cgroup v1 cannot run anything
			if data, err := os.ReadFile(filepath.Join(h, file)); err == nil {
				_ = os.WriteFile(filepath.Join(path, file), data, 0o644) // if this fails, joining the cgroup fails with an error
			}
		}
	}

	must.That(len(m.cgroups) > 0, "%w: no cgroups are mounted", ErrUnsupported)

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

	units = append(units, "/run/systemd/transient") // for units that are created over D-Bus
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
	m.done, err = localcluster.StartTied(m.cmd)

	return err
}

// bootTime is the maximum duration of a boot.
const bootTime = 30 * time.Second

// waitForBoot waits until systemd answers.
func (m *Machine) waitForBoot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if m.findInit() {
			if _, err := m.run(ctx, "busctl", "status", "org.freedesktop.systemd1"); err == nil { // systemd has its name on the bus
				return nil
			}
		}

		select {
		case <-m.done:
			return fmt.Errorf("systemd ended: %s", m.logTail())
		case <-ctx.Done():
			return fmt.Errorf("systemd does not answer within %s: %s", bootTime, m.logTail())
		case <-tick.C:
		}
	}
}

// findInit finds the machine's first process, the child of unshare.
func (m *Machine) findInit() bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", m.cmd.Process.Pid))
	if err != nil {
		return false
	}

	_, err = fmt.Sscan(string(raw), &m.init)

	return err == nil
}

// logTail returns the end of systemd's log.
func (m *Machine) logTail() string {
	raw, err := os.ReadFile(m.Log())
	if err != nil {
		return err.Error()
	}

	return strings.TrimSpace(string(raw[max(0, len(raw)-2000):]))
}

// Log returns the path of the log of systemd and its services.
func (m *Machine) Log() string { return filepath.Join(m.dir, "machine.log") }

// Path returns the host path of the machine's own file in /run or a unit
// directory.
func (m *Machine) Path(inside string) string { return filepath.Join(m.dir, inside) }

// Proc returns the host path of the machine's /proc.
func (m *Machine) Proc() string { return fmt.Sprintf("/proc/%d/root/proc", m.init) }

// Bus returns the host path of the system bus's socket.
func (m *Machine) Bus() string { return m.Path("/run/dbus/system_bus_socket") }

// Command returns a command that runs on the machine.
func (m *Machine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{
		"--target", fmt.Sprint(m.init), "--pid", "--mount", "--cgroup", "--ipc", "--uts", "--", name,
	}, args...)...)
}

// Systemctl runs systemctl on the machine and returns its output.
func (m *Machine) Systemctl(ctx context.Context, args ...string) (string, error) {
	return m.run(ctx, "systemctl", args...)
}

func (m *Machine) run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := m.Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}

	return string(out), err
}

// Stop ends the machine like a power cut, and removes its cgroup. Further calls
// do nothing.
func (m *Machine) Stop() error {
	_ = m.cmd.Process.Kill() // which ends all processes in the namespaces of unshare
	<-m.done
	return m.removeCgroups()
}

// removeCgroups removes the cgroups as soon as their last process has ended.
func (m *Machine) removeCgroups() error {
	var errs []error
	for _, root := range m.cgroups {
		errs = append(errs, sweep.RemoveCgroup(root))
	}

	m.cgroups = nil

	return errors.Join(errs...)
}
