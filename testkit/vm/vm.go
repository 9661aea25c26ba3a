// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vm runs virtual machines with QEMU for tests that need a whole
// machine: Debian with systemd as the first process, cgroup v2, its own kernel,
// disk and clock.
//
// The package must not know what its users test. A machine dies with the
// process that started it.
package vm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm/guest/protocol"
)

// Host is the address under which the machine reaches the host's loopback. IP
// is the machine's own.
const (
	Host = "10.0.2.2"
	IP   = "10.0.2.15"
)

// Disk is a disk as QEMU opens it. The guest's flushes reach it.
type Disk struct {
	File   string
	Format string // empty means raw
	Log    string // a file to which QEMU logs what the guest writes, for package blockdev; empty: none
}

// Options describe a machine.
type Options struct {
	Image *Image // for its kernel
	Root  Disk   // /dev/vda
	// Dir gets the machine's sockets, and the log of its serial console
	// (console.log, appended). The path must be short.
	Dir string
	// Accel is what Accel returned; empty means tcg,thread=multi.
	Accel  string
	Memory int // MiB; 0 means 2048
	// Data is a disk that the machine only reads: /dev/vdb.
	Data Disk
	// Wire is the Ethernet between two machines, eth1: the UDP ports of the
	// host's loopback, the own one and the other one. None: 0, 0.
	Wire [2]int
	// Forward are addresses of the host (host:port) whose connections reach
	// these TCP ports of the machine.
	Forward map[string]int
}

// Machine is a running virtual machine. Its methods can be called concurrently.
type Machine struct {
	dir     string
	process *localcluster.Process // QEMU
	base    string
	client  *http.Client
	qmp     *qmp
}

// Accel returns how QEMU runs the image on this machine: with KVM if the kernel
// runs on it, otherwise by emulation. The reason says why. A host can offer KVM
// and lack what an ordinary kernel needs: then the guest hangs, or QEMU ends.
func Accel(ctx context.Context, i *Image) (accel, reason string) {
	const emulated = "tcg,thread=multi"
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return emulated, err.Error()
	}

	f.Close()
	ctx, cancel := context.WithTimeout(ctx, kernelPatience)
	defer cancel()
	if err := runsKernel(ctx, i, "kvm"); err != nil {
		return emulated, "QEMU with KVM: " + err.Error()
	}

	return "kvm", "the kernel runs with KVM"
}

// kernelPatience is how long a kernel takes at most that has nothing to do.
// With KVM it needs some seconds.
const kernelPatience = time.Minute

// runsKernel starts the image's kernel without a disk: it panics, restarts the
// machine, and QEMU ends.
func runsKernel(ctx context.Context, i *Image, accel string) error {
	qemu, err := lookup("qemu-system-x86_64")
	if err != nil {
		return err
	}

	cmd := exec.CommandContext(ctx, qemu, "-accel", accel, "-cpu", "max", "-machine", "q35", "-m", "512", "-nodefaults", "-display", "none",
		"-kernel", i.Kernel, "-append", "panic=-1", "-no-reboot")
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("the kernel does not boot: %w", ctx.Err())
	}

	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%w: %s", err, line)
	}

	return nil
}

// Start boots a machine, and returns when it can execute scripts, which is
// before all services are up.
func Start(ctx context.Context, o Options) (_ *Machine, err error) {
	defer must.Catch(&err)

	must.OK(os.MkdirAll(o.Dir, 0o755))
	qemu := must.Get(lookup("qemu-system-x86_64"))
	address := must.Get(localcluster.FreeAddress())
	m := &Machine{
		dir: o.Dir, base: "http://" + address,
		// A connection does not survive a reboot of the machine.
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	socket := filepath.Join(o.Dir, "qmp.sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}

	cmd := exec.Command(qemu, arguments(o, socket, address)...)
	m.process = must.Get(localcluster.StartProcess("QEMU", filepath.Join(o.Dir, "qemu.log"), cmd))
	if m.qmp, err = dialQMP(ctx, socket, m.process.Done); err != nil {
		m.Kill()
		return nil, fmt.Errorf("QEMU: %w: %s", err, m.process.Tail())
	}

	go func() {
		<-m.qmp.broken
		m.process.Kill() // requests to a stopped machine would wait for ever
	}()
	if _, err := m.WaitBoot(ctx, ""); err != nil {
		m.Kill()
		return nil, err
	}

	return m, nil
}

func arguments(o Options, socket, address string) []string {
	accel, format := cmp.Or(o.Accel, "tcg,thread=multi"), cmp.Or(o.Root.Format, "raw")
	forward := fmt.Sprintf("user,id=net,hostfwd=tcp:%s-:%d", address, protocol.Port)
	for address, port := range o.Forward {
		forward += fmt.Sprintf(",hostfwd=tcp:%s-:%d", address, port)
	}

	root, device := "format="+format+",file="+o.Root.File, "virtio-blk-pci,drive=disk"
	if o.Root.Log != "" {
		device += ",discard=off,write-zeroes=off" // package blockdev knows writes and flushes only
		// QEMU logs a flush when it is complete. A flush of the host's disk takes
		// long: the writes that are complete meanwhile would count as flushed.
		root = fmt.Sprintf("driver=blklogwrites,file.driver=%s,file.file.filename=%s,file.cache.no-flush=on,log.filename=%s,log.cache.no-flush=on",
			format, o.Root.File, o.Root.Log)
	}

	args := []string{
		"-accel", accel, "-machine", "q35", "-cpu", "max", "-smp", "2", "-m", strconv.Itoa(cmp.Or(o.Memory, 2048)),
		"-nodefaults", "-display", "none", "-rtc", "base=utc,clock=host",
		"-kernel", o.Image.Kernel, "-initrd", o.Image.Initrd,
		// After a panic the machine boots again, as nodes are configured to.
		// Emulated processors share one TSC, which the kernel cannot know; each
		// look at another clock would be a system call and a device access.
		"-append", "root=/dev/vda rw console=ttyS0 net.ifnames=0 mitigations=off tsc=reliable init_on_alloc=0 panic=1 loglevel=5 systemd.show_status=0",
		"-chardev", "file,id=console,append=on,path=" + filepath.Join(o.Dir, "console.log"), "-serial", "chardev:console",
		"-qmp", "unix:" + socket + ",server=on,wait=off",
		"-device", "virtio-rng-pci",
		"-netdev", forward, "-device", "virtio-net-pci,netdev=net",
		"-drive", "if=none,id=disk,cache=writeback," + root, "-device", device,
	}
	if o.Data.File != "" {
		args = append(args, "-drive", "if=none,id=data,read-only=on,format="+cmp.Or(o.Data.Format, "raw")+",file="+o.Data.File,
			"-device", "virtio-blk-pci,drive=data")
	}

	if local, remote := o.Wire[0], o.Wire[1]; local != 0 {
		args = append(args, "-netdev", fmt.Sprintf("dgram,id=wire,local.type=inet,local.host=127.0.0.1,local.port=%d,remote.type=inet,remote.host=127.0.0.1,remote.port=%d", local, remote),
			// Each end needs an Ethernet address of its own.
			"-device", fmt.Sprintf("virtio-net-pci,netdev=wire,mac=52:54:01:00:%02x:%02x", local>>8, local&0xff))
	}

	return args
}

// bootTime is the maximum duration of a boot.
const bootTime = 30 * time.Minute

// WaitBoot waits until the machine can execute scripts and has another boot ID
// than before, and returns it. "" accepts every ID.
func (m *Machine) WaitBoot(ctx context.Context, before string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if id, err := m.BootID(ctx); err == nil && id != before {
			return id, nil
		}

		select {
		case <-m.process.Done:
			return "", fmt.Errorf("QEMU ended: %w", m.ended())
		case <-ctx.Done():
			return "", fmt.Errorf("the virtual machine does not boot: %w: %s", ctx.Err(), m.console())
		case <-tick.C:
		}
	}
}

// BootID returns the ID of the machine's boot; an error if it does not answer
// within five seconds.
func (m *Machine) BootID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	raw, err := m.do(ctx, http.MethodGet, protocol.BootPath, nil, nil)
	return strings.TrimSpace(string(raw)), err
}

// Run executes a script with sh, as root, and returns its standard output and
// standard error together. If ctx ends, the script is killed. The error is an *ExitError
// if the script's exit code is not 0.
func (m *Machine) Run(ctx context.Context, script string) (string, error) {
	raw, err := m.do(ctx, http.MethodPost, protocol.RunPath, nil, strings.NewReader(script))
	if err != nil {
		return "", err
	}

	var r protocol.Result
	if err := json.Unmarshal(raw, &r); err != nil {
		return "", fmt.Errorf("the virtual machine's answer: %w", err)
	}
	if r.Code != 0 {
		err = &ExitError{Script: script, Result: r}
	}

	return r.Output, err
}

// ExitError is the error of a script whose exit code is not 0.
type ExitError struct {
	Script string
	protocol.Result
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%q in the virtual machine: exit code %d: %s", e.Script, e.Code, strings.TrimSpace(e.Output))
}

// PutFile replaces a file in the machine, with missing directories, and returns
// when it is on the disk.
func (m *Machine) PutFile(ctx context.Context, path string, mode os.FileMode, content []byte) error {
	query := url.Values{"path": {path}, "mode": {fmt.Sprintf("%o", mode.Perm())}}
	_, err := m.do(ctx, http.MethodPut, protocol.FilePath, query, bytes.NewReader(content))
	return err
}

func (m *Machine) do(ctx context.Context, method, path string, query url.Values, body io.Reader) (raw []byte, err error) {
	err = must.Try(func() {
		request := must.Get(http.NewRequestWithContext(ctx, method, m.base+path+"?"+query.Encode(), body))
		response := must.Get(m.client.Do(request))
		defer response.Body.Close()
		raw = must.Get(io.ReadAll(response.Body))
		must.That(response.StatusCode == http.StatusOK,
			"%s %s in the virtual machine: %s: %s", method, path, response.Status, strings.TrimSpace(string(raw)))
	})
	if err != nil {
		select {
		case <-m.process.Done:
			err = errors.Join(err, m.ended())
		default:
		}
	}

	return raw, err
}

// ended returns how QEMU has ended.
func (m *Machine) ended() error {
	<-m.qmp.broken
	return fmt.Errorf("%s: %w: %s", m.process.Cmd.ProcessState, m.qmp.err, m.process.Tail())
}

// Pause stops the machine's processors and flushes its disks; Continue starts
// the processors again.
func (m *Machine) Pause(ctx context.Context) error { return m.qmp.execute(ctx, "stop") }

// Continue ends a Pause.
func (m *Machine) Continue(ctx context.Context) error { return m.qmp.execute(ctx, "cont") }

// Kill ends QEMU at once: the machine loses its power, but what it has written
// to its disks stays. Further calls do nothing.
func (m *Machine) Kill() {
	m.process.Kill()
	if m.qmp != nil {
		m.qmp.close()
	}
}

// console returns the end of what the machine has said.
func (m *Machine) console() string {
	raw, err := os.ReadFile(filepath.Join(m.dir, "console.log"))
	if err != nil {
		return err.Error()
	}

	return strings.TrimSpace(string(raw[max(0, len(raw)-2000):]))
}
