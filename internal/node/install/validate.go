// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// products are products that contain a kubelet, by the name of their program or
// unit.
var products = map[string]string{
	"k3s": "k3s", "rke2": "RKE2", "k0s": "k0s", "k0sworker": "k0s", "k0scontroller": "k0s", "kubelite": "MicroK8s", "microk8s": "MicroK8s",
	"snap": "a snap",
}

// unit returns a unit, or an error if it cannot be wrapped.
func (h *Host) unit(ctx context.Context, name string) (Unit, error) {
	if strings.ContainsAny(name, "/ ") {
		return Unit{}, fmt.Errorf("%q is not a valid unit name", name)
	}

	u, err := h.Manager.Unit(ctx, name)
	if err != nil {
		return u, err
	}

	switch {
	case u.LoadState == "not-found":
		return u, h.notFound(ctx, name)
	case u.LoadState == "masked":
		return u, fmt.Errorf("%s is masked: unmask it (systemctl unmask %[1]s), or name the unit that runs the kubelet with --unit", name)
	case u.LoadState != "loaded":
		return u, fmt.Errorf("systemd cannot load %s (%s): %s", name, u.LoadState, u.LoadError)
	case u.Transient:
		return u, fmt.Errorf("%s is transient, and ends with the next boot: create a unit file for the kubelet", name)
	case u.Root != "":
		return u, fmt.Errorf("%s runs in another root directory (%s), which does not contain the agent", name, u.Root)
	case u.Type == "forking" || u.Type == "oneshot" || u.Type == "dbus":
		return u, fmt.Errorf("%s is of Type=%s, which a kubelet cannot have", name, u.Type)
	}

	return u, nil
}

func (h *Host) notFound(ctx context.Context, name string) error {
	found, err := h.Manager.Kubelets(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("%s does not exist, and no unit looks like a kubelet: set --unit", name)
	}

	var words []string
	for _, f := range found {
		if in := productOf(f); in != "" {
			f += " (" + in + " contains its kubelet and cannot be wrapped)"
		}

		words = append(words, f)
	}

	return fmt.Errorf("%s does not exist; found %s: set --unit", name, strings.Join(words, ", "))
}

// productOf returns the product that contains a kubelet, by the name of its
// program or unit; empty if none.
func productOf(name string) string {
	base := filepath.Base(name)
	for prefix, product := range products {
		if base == prefix || strings.HasPrefix(base, prefix+"-") || strings.HasPrefix(base, prefix+".") {
			return product
		}
	}

	return ""
}

// checkProgram refuses a program that is not a kubelet.
func checkProgram(u Unit, argv []string, where string) error {
	program := argv[0]
	base := filepath.Base(program)
	switch {
	case isAgent(program):
		return fmt.Errorf("%s already starts evenkeel-agent for the kubelet of %s: remove that line and run systemctl daemon-reload, or keep it",
			where, u.Name)
	case productOf(base) != "":
		return fmt.Errorf("%s runs %s: %s contains its kubelet and cannot be wrapped", u.Name, program, productOf(base))
	case !filepath.IsAbs(program):
		return fmt.Errorf("%s runs %q: use the absolute path in %s", u.Name, program, where)
	case strings.ContainsAny(program, "$"):
		return fmt.Errorf("%s runs %q, and a $ cannot be preserved: use another path for the kubelet in %s", u.Name, program, where)
	case !strings.HasPrefix(base, "kubelet"):
		return fmt.Errorf("%s runs %s, which is not a kubelet (%s): evenkeel-agent must be given the kubelet itself; have that program run "+
			"`evenkeel-agent -- %s ...`, or the unit run the kubelet", u.Name, program, where, wrappedKubelet(argv))
	}

	if script, err := isScript(program); err != nil {
		return fmt.Errorf("the kubelet of %s: %w", u.Name, err)
	} else if script {
		return fmt.Errorf("%s runs %s, which is a script (%s): evenkeel-agent must be given the kubelet itself; have the script exec "+
			"`evenkeel-agent -- /path/to/kubelet ...`, or the unit run the kubelet", u.Name, program, where)
	}

	return nil
}

// wrappedKubelet returns the path of the kubelet that a wrapper has among its
// arguments, or what stands for it.
func wrappedKubelet(argv []string) string {
	for _, arg := range argv[1:] {
		if filepath.IsAbs(arg) && filepath.Base(arg) == "kubelet" {
			return arg
		}
	}

	return "/path/to/kubelet"
}

func isScript(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}

	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 2))

	return string(head) == "#!", err
}

// Volatile reports whether a reboot clears a directory, because its file system
// is in memory, or an overlay whose writable layer is. mounts is the path of a
// mountinfo file, which shows overlays; without it they do not count.
func Volatile(dir, mounts string) bool {
	system, err := fileSystem(dir)
	if err == nil && system.Type == unix.OVERLAYFS_SUPER_MAGIC {
		if upper := upperDir(dir, mounts); upper != "" {
			system, err = fileSystem(upper)
		}
	}

	return err == nil && (system.Type == unix.TMPFS_MAGIC || system.Type == unix.RAMFS_MAGIC)
}

// upperDir returns the directory of the writable layer of the overlay with a
// directory; empty if unknown.
func upperDir(dir, mounts string) string {
	data, err := os.ReadFile(mounts)
	if err != nil {
		return ""
	}

	at, options := "", ""
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 5 || len(fields) < dash+4 {
			continue
		}

		point := fields[4]
		if relative, err := filepath.Rel(point, dir); err == nil && filepath.IsLocal(relative) && len(point) >= len(at) {
			at, options = point, fields[dash+3]
		}
	}

	for option := range strings.SplitSeq(options, ",") {
		if upper, ok := strings.CutPrefix(option, "upperdir="); ok {
			return upper
		}
	}

	return ""
}
