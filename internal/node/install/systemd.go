package install

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// Unit is what systemd says of a unit.
type Unit struct {
	Name             string // its own, if it was asked for by another
	LoadState        string // loaded, not-found, masked, bad-setting, error
	LoadError        string
	ActiveState      string // active, activating, inactive, failed...
	SubState         string // running, auto-restart...
	Result           string // success, exit-code, timeout...
	Fragment         string // the unit's file
	DropIns          []string
	NeedDaemonReload bool // its files are not what systemd has read
	Transient        bool
	Invocation       string // another one each time it is started
	Restarts         uint32 // by systemd, since it was started by request
	MainPID          uint32
	Type             string
	Root             string     // of its own: RootDirectory or RootImage
	Exec             [][]string // the words of each ExecStart, with variables as they are
	Environment      []string
	EnvironmentFiles []EnvironmentFile
}

// Running tells that the unit is up.
func (u Unit) Running() bool { return u.ActiveState == "active" && u.SubState == "running" }

// state is how people call it.
func (u Unit) state() string {
	s := fmt.Sprintf("%s (%s)", u.ActiveState, u.SubState)
	if u.Result != "" && u.Result != "success" {
		s += ", result " + u.Result
	}
	return s
}

// Systemd is the service manager, over D-Bus.
type Systemd struct {
	conn    *dbus.Conn
	manager dbus.BusObject
	direct  bool // no bus between
}

// ErrNoSystemd means that there is no systemd to talk to.
var ErrNoSystemd = errors.New("systemd cannot be reached over D-Bus")

const (
	destination = "org.freedesktop.systemd1"
	managerPath = "/org/freedesktop/systemd1"
	managerName = destination + ".Manager"
)

// Dial connects to systemd: through the system bus at the first path or, if nobody answers there, by its own socket at
// the second. The error is ErrNoSystemd and says what was tried.
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
	return nil, fmt.Errorf("%w: %w; %w: this is for nodes whose kubelet systemd runs; run it on the node itself, as root", ErrNoSystemd, errs[0], errs[1])
}

// How long systemd has for an answer, and for reading all its files.
const (
	answerWithin = 30 * time.Second
	reloadWithin = 3 * time.Minute
)

func dial(ctx context.Context, path string, direct bool) (*Systemd, error) {
	conn, err := dbus.Dial("unix:path="+path, dbus.WithContext(context.WithoutCancel(ctx)))
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // while it is greeted
	err = conn.Auth(nil)
	switch {
	case err != nil:
	case direct:
		err = greet(ctx, conn)
	default:
		err = conn.Hello()
	}
	s := &Systemd{conn: conn, manager: conn.Object(destination, managerPath), direct: direct}
	if err == nil {
		err = s.manager.CallWithContext(ctx, managerName+".Subscribe", 0).Err // so that JobRemoved is sent
	}
	if err == nil && !direct {
		err = conn.AddMatchSignalContext(ctx, dbus.WithMatchInterface(managerName), dbus.WithMatchMember("JobRemoved"))
	}
	if err != nil {
		_ = conn.Close() // once more, if it was time that ended it
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer: %w", ctx.Err())
		}
		return nil, err
	}
	return s, nil
}

// greet returns when systemd answers on its own socket. What reaches that together with the end of the authentication, as it
// does on a busy machine, is read but not looked at until more comes: so more comes, until there is an answer.
func greet(ctx context.Context, conn *dbus.Conn) error {
	for within := 100 * time.Millisecond; ; within *= 2 {
		try, cancel := context.WithTimeout(ctx, within)
		err := conn.Object(destination, managerPath).CallWithContext(try, "org.freedesktop.DBus.Peer.Ping", 0).Err
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// Close ends the connection.
func (s *Systemd) Close() error { return s.conn.Close() }

// Unit returns what systemd says of a unit, which it loads if need be. That there is no such unit is no error.
func (s *Systemd) Unit(ctx context.Context, name string) (Unit, error) {
	wrap := func(err error) error { return fmt.Errorf("ask systemd about %s: %w", name, plain(err)) }
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var path dbus.ObjectPath
	if err := s.manager.CallWithContext(ctx, managerName+".LoadUnit", 0, name).Store(&path); err != nil {
		return Unit{}, wrap(err)
	}
	object := s.conn.Object(destination, path)
	properties := properties{}
	for _, kind := range []string{".Unit", ".Service"} {
		var some map[string]dbus.Variant
		if err := object.CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0, destination+kind).Store(&some); err != nil {
			return Unit{}, wrap(err)
		}
		for key, value := range some {
			properties[key] = value
		}
	}
	u, err := properties.unit()
	if err != nil {
		return Unit{}, wrap(err)
	}
	return u, nil
}

// properties are those of a unit and its service.
type properties map[string]dbus.Variant

func (p properties) unit() (Unit, error) {
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
		value, given := p[key]
		if !given {
			return u, fmt.Errorf("there is no %s: this systemd is too old, or it is no service", key)
		}
		if err := value.Store(into); err != nil {
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

// Kubelets returns the units that may be, or have in them, a kubelet.
func (s *Systemd) Kubelets(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	patterns := []string{"*kubelet*.service", "*kubelite*.service", "k3s*.service", "rke2*.service", "k0s*.service"}
	var files []struct{ Path, State string }
	if err := s.manager.CallWithContext(ctx, managerName+".ListUnitFilesByPatterns", 0, []string{}, patterns).Store(&files); err != nil {
		return nil, fmt.Errorf("ask systemd for its units: %w", plain(err))
	}
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f.Path))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Reload has systemd read all unit files anew.
func (s *Systemd) Reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reloadWithin)
	defer cancel()
	if err := s.manager.CallWithContext(ctx, managerName+".Reload", 0).Err; err != nil {
		return fmt.Errorf("have systemd read its files (daemon-reload): %w", plain(err))
	}
	return nil
}

// Restart restarts a unit, and returns when that is done.
func (s *Systemd) Restart(ctx context.Context, name string) error {
	if err := s.job(ctx, "RestartUnit", name, "replace"); err != nil {
		return fmt.Errorf("have systemd restart %s: %w", name, plain(err))
	}
	return nil
}

// Stop stops a unit, and returns when that is done.
func (s *Systemd) Stop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := s.job(ctx, "StopUnit", name, "replace"); err != nil {
		return fmt.Errorf("have systemd stop %s: %w", name, plain(err))
	}
	return nil
}

// Begin starts a command as a service that is not on disk and goes when it has ended. It is not begun if the first command
// fails; one of that name that runs is left alone.
func (s *Systemd) Begin(ctx context.Context, name, description string, first, argv []string) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	type property struct {
		Name  string
		Value dbus.Variant
	}
	type command struct {
		Path          string
		Argv          []string
		IgnoreFailure bool
	}
	type other struct { // units of which there are none
		Name       string
		Properties []property
	}
	if u, err := s.Unit(ctx, name); err == nil && u.Running() {
		return nil
	}
	err := s.job(ctx, "StartTransientUnit", name, "fail", []property{
		{"Description", dbus.MakeVariant(description)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
		{"ExecStartPre", dbus.MakeVariant([]command{{first[0], first, false}})},
		{"ExecStart", dbus.MakeVariant([]command{{argv[0], argv, false}})},
	}, []other{})
	if err != nil {
		return fmt.Errorf("have systemd start %s: %w", name, plain(err))
	}
	return nil
}

// job has the manager do something that ends with a job, and returns when that is done.
func (s *Systemd) job(ctx context.Context, method string, args ...any) error {
	removed := make(chan *dbus.Signal, 64)
	s.conn.Signal(removed)
	defer s.conn.RemoveSignal(removed)
	var job dbus.ObjectPath
	if err := s.manager.CallWithContext(ctx, managerName+"."+method, 0, args...).Store(&job); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not done: %w", context.Cause(ctx))
		case signal, open := <-removed:
			if !open {
				return errors.New("the connection was closed")
			}
			var id uint32
			var path dbus.ObjectPath
			var unit, result string
			if signal.Name != managerName+".JobRemoved" || dbus.Store(signal.Body, &id, &path, &unit, &result) != nil || path != job {
				continue
			}
			if result != "done" {
				return fmt.Errorf("the result of the job is %q", result)
			}
			return nil
		}
	}
}

// ErrDenied means that systemd may not be told to do it.
var ErrDenied = errors.New("it is not allowed")

// plain says of an error of D-Bus what it means.
func plain(err error) error {
	var e dbus.Error
	if !errors.As(err, &e) {
		return err
	}
	words := strings.TrimSpace(e.Error())
	switch e.Name {
	case "org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.AuthFailed", "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired":
		return fmt.Errorf("%w by the policy of D-Bus, polkit or SELinux: %s", ErrDenied, words)
	}
	return fmt.Errorf("%s (%s)", words, e.Name)
}
