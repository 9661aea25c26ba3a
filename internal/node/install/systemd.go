// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Unit is the state of a systemd unit.
type Unit struct {
	Name             string // the unit's own name, if the caller used an alias
	LoadState        string // loaded, not-found, masked, bad-setting, error
	LoadError        string
	ActiveState      string // active, activating, inactive, failed...
	SubState         string // running, auto-restart...
	Result           string // success, exit-code, timeout...
	Fragment         string // path of the unit file
	DropIns          []string
	NeedDaemonReload bool // the files changed after systemd read them
	Transient        bool
	Invocation       string // changes at each start
	Restarts         uint32 // automatic ones, since the last start by request
	MainPID          uint32
	Type             string
	Root             string     // RootDirectory or RootImage
	Exec             [][]string // the words of each ExecStart=, with variables not expanded
	Environment      []string
	EnvironmentFiles []EnvironmentFile
}

// Running reports whether the unit is up.
func (u Unit) Running() bool { return u.ActiveState == "active" && u.SubState == "running" }

// state describes the unit's state to people.
func (u Unit) state() string {
	s := fmt.Sprintf("%s (%s)", u.ActiveState, u.SubState)
	if u.Result != "" && u.Result != "success" {
		s += ", result " + u.Result
	}

	return s
}

// Systemd is the node's service manager, over D-Bus.
type Systemd struct {
	conn *sd.Conn
	raw  []*dbus.Conn // what conn is made of: calls on one, signals on the other
}

// ErrNoSystemd means that no systemd answers over D-Bus.
var ErrNoSystemd = errors.New("systemd cannot be reached over D-Bus")

// Dial connects to systemd: through the system bus at the first path or, if
// that fails, through systemd's private socket at the second. The error is
// ErrNoSystemd and names both attempts.
func Dial(ctx context.Context, bus, private string) (*Systemd, error) {
	var errs []error
	for _, path := range []string{bus, private} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		s, err := dial(ctx, path, path == private)
		if err == nil {
			return s, nil
		}

		errs = append(errs, fmt.Errorf("%s: %w", path, err))
	}

	return nil, fmt.Errorf("%w: %w; %w: this command works on nodes whose kubelet is a systemd service; run it on the node itself, as root",
		ErrNoSystemd, errs[0], errs[1])
}

const (
	answerTimeout = 30 * time.Second
	reloadTimeout = 3 * time.Minute // systemd reads all its files
)

// dial has go-systemd use connections that are made here: its own wait for an
// answer without a limit, know one path each, and do not ping (see ping).
func dial(ctx context.Context, path string, direct bool) (*Systemd, error) {
	lasting := context.WithoutCancel(ctx) // the connections outlive Dial
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var stops []func() bool
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	s := &Systemd{}
	var err error
	s.conn, err = sd.NewConnection(func() (*dbus.Conn, error) {
		conn, err := dbus.Dial("unix:path="+path, dbus.WithContext(lasting))
		if err != nil {
			return nil, err
		}

		s.raw = append(s.raw, conn)
		// In force until NewConnection returns, which makes a call of its own
		// without a limit.
		stops = append(stops, context.AfterFunc(ctx, func() { _ = conn.Close() }))

		return conn, greet(ctx, conn, direct)
	})
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer: %w", ctx.Err())
	}

	if err != nil {
		for _, conn := range s.raw {
			_ = conn.Close()
		}

		return nil, err
	}

	return s, nil
}

// greet authenticates, and subscribes to the signals of jobs that end.
func greet(ctx context.Context, conn *dbus.Conn, direct bool) error {
	if err := conn.Auth(nil); err != nil {
		return err
	}

	var err error
	if direct {
		err = ping(ctx, conn)
	} else {
		err = conn.Hello()
	}

	if err != nil {
		return err
	}

	return manager(conn).CallWithContext(ctx, destination+".Manager.Subscribe", 0).Err
}

const destination = "org.freedesktop.systemd1"

func manager(conn *dbus.Conn) dbus.BusObject {
	return conn.Object(destination, "/org/freedesktop/systemd1")
}

// ping returns when systemd answers on its private socket. If systemd is busy,
// the first call can arrive together with the end of the authentication;
// systemd then reads the call but does not answer until more data arrives. So
// ping repeats the call until an answer comes.
func ping(ctx context.Context, conn *dbus.Conn) error {
	for timeout := 100 * time.Millisecond; ; timeout *= 2 {
		try, cancel := context.WithTimeout(ctx, timeout)
		err := manager(conn).CallWithContext(try, "org.freedesktop.DBus.Peer.Ping", 0).Err
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// Close ends the connection.
func (s *Systemd) Close() { s.conn.Close() }

// Unit returns the state of a unit, which systemd loads if needed. An unknown
// unit is not an error.
func (s *Systemd) Unit(ctx context.Context, name string) (Unit, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	properties, err := s.conn.GetAllPropertiesContext(ctx, name)
	var u Unit
	if err == nil {
		u, err = unitOf(properties)
	}
	if err != nil {
		return Unit{}, fmt.Errorf("ask systemd about %s: %w", name, describeError(err))
	}

	return u, nil
}

// unitOf reads the D-Bus properties of a unit and its service.
func unitOf(properties map[string]any) (Unit, error) {
	var u Unit
	var loadError struct{ Name, Message string }
	var invocation []byte
	var rootImage string
	var exec []struct {
		Path                             string
		Argv                             []string
		IgnoreFailure                    bool
		Start, StartMono, Exit, ExitMono uint64
		PID                              uint32
		Code, Status                     int32
	}
	for key, into := range map[string]any{
		"Id": &u.Name, "LoadState": &u.LoadState, "LoadError": &loadError, "ActiveState": &u.ActiveState, "SubState": &u.SubState,
		"Result": &u.Result, "FragmentPath": &u.Fragment, "DropInPaths": &u.DropIns, "NeedDaemonReload": &u.NeedDaemonReload,
		"Transient": &u.Transient, "InvocationID": &invocation, "NRestarts": &u.Restarts, "MainPID": &u.MainPID, "Type": &u.Type,
		"RootDirectory": &u.Root, "RootImage": &rootImage, "ExecStart": &exec, "Environment": &u.Environment,
		"EnvironmentFiles": &u.EnvironmentFiles,
	} {
		value, found := properties[key]
		if !found {
			return u, fmt.Errorf("the property %s is missing: this systemd is too old, or the unit is not a service", key)
		}
		if err := dbus.Store([]any{value}, into); err != nil {
			return u, fmt.Errorf("%s: %w", key, err)
		}
	}

	u.LoadError, u.Invocation = loadError.Message, fmt.Sprintf("%x", invocation)
	u.Root += rootImage
	for _, e := range exec {
		u.Exec = append(u.Exec, e.Argv)
	}

	return u, nil
}

// Kubelets returns the names of the units that may run a kubelet, alone or
// inside another program.
func (s *Systemd) Kubelets(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	patterns := []string{"*kubelet*.service", "*kubelite*.service", "k3s*.service", "rke2*.service", "k0s*.service"}
	files, err := s.conn.ListUnitFilesByPatternsContext(ctx, []string{}, patterns)
	if err != nil {
		return nil, fmt.Errorf("ask systemd for its units: %w", describeError(err))
	}

	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f.Path))
	}

	slices.Sort(names)

	return slices.Compact(names), nil
}

// Reload makes systemd read all unit files again.
func (s *Systemd) Reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if err := s.conn.ReloadContext(ctx); err != nil {
		return fmt.Errorf("systemctl daemon-reload: %w", describeError(err))
	}

	return nil
}

// Restart restarts a unit, and returns when the job has ended.
func (s *Systemd) Restart(ctx context.Context, name string) error {
	return s.job(ctx, "systemctl restart "+name, func(result chan<- string) (int, error) {
		return s.conn.RestartUnitContext(ctx, name, "replace", result)
	})
}

// Stop stops a unit, and returns when the job has ended.
func (s *Systemd) Stop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return s.job(ctx, "systemctl stop "+name, func(result chan<- string) (int, error) {
		return s.conn.StopUnitContext(ctx, name, "replace", result)
	})
}

// StartTransient implements Manager.
func (s *Systemd) StartTransient(ctx context.Context, name, description string, pre, argv []string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if u, err := s.Unit(ctx, name); err == nil && u.Running() {
		return nil
	}

	execStartPre := sd.PropExecStart(pre, false)
	execStartPre.Name = "ExecStartPre"

	return s.job(ctx, "start the transient unit "+name, func(result chan<- string) (int, error) {
		return s.conn.StartTransientUnitContext(ctx, name, "fail", []sd.Property{
			sd.PropDescription(description),
			{Name: "CollectMode", Value: dbus.MakeVariant("inactive-or-failed")},
			execStartPre,
			sd.PropExecStart(argv, false),
		}, result)
	})
}

// job begins a job of systemd, and returns when the job has ended. what names
// the job in an error.
func (s *Systemd) job(ctx context.Context, what string, begin func(result chan<- string) (int, error)) error {
	ended := make(chan string, 1)
	if _, err := begin(ended); err != nil {
		return fmt.Errorf("%s: %w", what, describeError(err))
	}

	select { // go-systemd does not report a connection that ends
	case result := <-ended:
		if result != "done" {
			return fmt.Errorf("%s: the result of the job is %q", what, result)
		}

		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: the job has not ended: %w", what, context.Cause(ctx))
	case <-s.raw[0].Context().Done():
	case <-s.raw[1].Context().Done():
	}

	return fmt.Errorf("%s: the connection to systemd was closed", what)
}

// describeError adds to an error of D-Bus what it means.
func describeError(err error) error {
	var e dbus.Error
	if !errors.As(err, &e) {
		return err
	}

	message := strings.TrimSpace(e.Error())
	switch e.Name {
	case "org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.AuthFailed",
		"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired":
		return fmt.Errorf("denied by the policy of D-Bus, polkit or SELinux: %s", message)
	}

	return fmt.Errorf("%s (%s)", message, e.Name)
}

// journalLines is enough to see why a service ended.
const journalLines = 20

// Journal returns the last log lines of a unit; "" if there is no journal.
func Journal(ctx context.Context, u Unit) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, "journalctl", "--unit="+u.Name, "--boot", "--lines="+strconv.Itoa(journalLines), "--no-pager",
		"--output=cat", "--quiet").Output()
	if err != nil {
		return ""
	}

	return strings.TrimSpace(string(text))
}
