package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// others are programs that have a kubelet in them.
var others = map[string]string{
	"k3s": "k3s", "rke2": "RKE2", "k0s": "k0s", "kubelite": "MicroK8s", "microk8s": "MicroK8s", "snap": "a snap",
}

// unit asks for a unit that can be wrapped.
func (h *Host) unit(ctx context.Context, name string) (Unit, error) {
	if !strings.HasSuffix(name, ".service") {
		name += ".service"
	}
	if strings.ContainsAny(name, "/ ") {
		return Unit{}, fmt.Errorf("%q is no name of a unit", name)
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
		return u, fmt.Errorf("%s is transient, and gone with the next boot: give the kubelet a unit file", name)
	case u.Root != "":
		return u, fmt.Errorf("%s runs in a root of its own (%s), in which there is no agent", name, u.Root)
	case u.Type == "forking" || u.Type == "oneshot" || u.Type == "dbus":
		return u, fmt.Errorf("%s is of Type=%s, which no kubelet is", name, u.Type)
	}
	return u, nil
}

func (h *Host) notFound(ctx context.Context, name string) error {
	found, err := h.Manager.Kubelets(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("there is no %s, and no unit that looks like a kubelet's: name it with --unit", name)
	}
	var words []string
	for _, f := range found {
		if in := inside(f); in != "" {
			f += " (" + in + " has its kubelet inside and cannot be wrapped)"
		}
		words = append(words, f)
	}
	return fmt.Errorf("there is no %s; there is %s: name the kubelet's with --unit", name, strings.Join(words, ", "))
}

// inside names what has a kubelet inside, by a program or a unit of it.
func inside(name string) string {
	base := filepath.Base(name)
	for prefix, product := range others {
		if base == prefix || strings.HasPrefix(base, prefix+"-") || strings.HasPrefix(base, prefix+".") {
			return product
		}
	}
	return ""
}

// judgeProgram refuses what is no kubelet: the agent would not be what it is for.
func judgeProgram(u Unit, argv []string, where string) error {
	program := argv[0]
	base := filepath.Base(program)
	switch {
	case isAgent(program):
		return fmt.Errorf("%s puts an evenkeel-agent in front of the kubelet of %s already: remove that (and systemctl daemon-reload), or leave it as it is", where, u.Name)
	case inside(base) != "":
		return fmt.Errorf("%s runs %s: %s has its kubelet inside and cannot be wrapped", u.Name, program, inside(base))
	case !filepath.IsAbs(program):
		return fmt.Errorf("%s runs %q: write it with its absolute path in %s", u.Name, program, where)
	case strings.ContainsAny(program, "$"):
		return fmt.Errorf("%s runs %q, and a $ cannot be kept as it is: give the kubelet another path in %s", u.Name, program, where)
	case !strings.HasPrefix(base, "kubelet"):
		return fmt.Errorf("%s runs %s, which is no kubelet (%s): evenkeel-agent must be given the kubelet itself; have that program run `evenkeel-agent -- /path/to/kubelet ...`, or the unit run the kubelet", u.Name, program, where)
	}
	if script, err := isScript(program); err != nil {
		return fmt.Errorf("the kubelet of %s: %w", u.Name, err)
	} else if script {
		return fmt.Errorf("%s runs %s, which is a script (%s): evenkeel-agent must be given the kubelet itself; have the script exec `evenkeel-agent -- /path/to/kubelet ...`, or the unit run the kubelet", u.Name, program, where)
	}
	return nil
}

func isScript(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, 2)
	if _, err := io.ReadFull(f, head); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(head, []byte("#!")), nil
}

// readFollowing reads a unit's file, which may be a link.
func readFollowing(path string) ([]byte, error) { return os.ReadFile(path) }
