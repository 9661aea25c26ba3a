// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// NewImage returns a component whose binary is in a container image. containerd
// runs kube-proxy; a kubelet is copied to scratchDir. ctr must be in PATH and
// uses CONTAINERD_ADDRESS, CONTAINERD_SNAPSHOTTER and CONTAINERD_NAMESPACE (by
// default "k8s.io", the namespace of the kubelet's images). It never pulls an
// image: without the image or without containerd, kube-proxy's verdicts are
// CouldNotTell with a hint. The error says that the component is unknown, that
// the reference is invalid, or why there is no kubelet.
func NewImage(name, reference, scratchDir string, log *slog.Logger) (Component, error) {
	switch {
	case components[name] == nil:
		return nil, unknownComponent(name)
	case reference == "" || reference[0] == '-' || strings.ContainsFunc(reference, func(r rune) bool { return r <= ' ' }):
		return nil, fmt.Errorf("%q is not an image reference such as registry.k8s.io/%s:v1.37.2", reference, name)
	}

	scratchDir, err := filepath.Abs(scratchDir) // containerd mounts a subdirectory
	if err != nil {
		return nil, fmt.Errorf("scratch directory: %w", err)
	}

	i := &image{reference: reference, scratch: scratchDir, log: log}
	if name == "kubelet" {
		path, err := i.extract(name)
		if err != nil {
			return nil, err
		}

		return New(name, path, scratchDir, log)
	}

	i.path = "/usr/local/bin/kube-proxy" // as in kubeadm's DaemonSet

	return newKubeProxyWith(i, scratchDir, log), nil
}

// extract copies a program out of the image, and returns its path.
func (i *image) extract(name string) (_ string, err error) {
	if _, err := i.identify(context.Background()); err != nil {
		return "", err
	}

	root, err := makeScratch(i.scratch)
	if err != nil {
		return "", fmt.Errorf("no scratch directory: %w", err)
	}

	defer removeScratch(root, i.log)
	if _, err := i.ctr(context.Background(), "images", "mount", i.reference, root); err != nil {
		return "", fmt.Errorf("mount the image %s: %w", i.reference, err)
	}

	defer func() {
		if _, failed := i.ctr(context.Background(), "images", "unmount", "--rm", root); err == nil && failed != nil {
			err = fmt.Errorf("unmount the image %s from %s: %w", i.reference, root, failed)
		}
	}()
	for _, dir := range []string{"usr/bin", "usr/local/bin", ""} {
		file, openErr := os.OpenInRoot(root, filepath.Join(dir, name)) // a link must not lead out of the image
		if openErr != nil {
			continue
		}

		path := filepath.Join(i.scratch, name)

		return path, errors.Join(copyProgram(file, path), file.Close())
	}

	return "", fmt.Errorf("there is no %s in /usr/bin, /usr/local/bin or / of the image %s", name, i.reference)
}

func copyProgram(from io.Reader, path string) error {
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}

	_, err = io.Copy(to, from)

	return errors.Join(err, to.Close())
}

// image runs a program of a container image without network, without privileges
// and with a read-only root file system. Only the directory of the process is
// shared with the host.
type image struct {
	reference string
	path      string // of the program in the image
	scratch   string
	log       *slog.Logger

	tidy sync.Once
}

func (i *image) identify(ctx context.Context) (Identity, error) {
	listed, err := i.ctr(ctx, "images", "ls", "name=="+strconv.Quote(i.reference))
	if err != nil {
		return Identity{}, fmt.Errorf("cannot look up the image %s in containerd: %w", i.reference, err)
	}

	for line := range strings.Lines(listed) { // header, then name, type, digest and more
		if f := strings.Fields(line); len(f) > 2 && f[0] == i.reference && strings.Contains(f[2], ":") {
			return Identity{Path: f[2]}, nil
		}
	}

	namespace := ctrNamespace()

	return Identity{}, fmt.Errorf("image %s is not in containerd's namespace %s: pull it with ctr -n %s images pull %s",
		i.reference, namespace, namespace, i.reference)
}

// inside returns a name that no configuration contains, because it is removed
// from error messages.
func (i *image) inside(dir string) string { return "/" + filepath.Base(dir) }

const (
	containerPrefix = "evenkeel-dryrun-"
	ctrTimeout      = 5 * time.Second
	stopGrace       = 5 * time.Second
)

func (i *image) run(ctx context.Context, _ Identity, p process, out *outputReader) exitStatus {
	fifos, err := makeScratch(i.scratch) // the default directory would keep the FIFOs of a killed ctr
	if err != nil {
		return exitStatus{err: fmt.Errorf("no scratch directory: %w", err)}
	}

	defer removeScratch(fifos, i.log)
	i.tidy.Do(func() { i.removeLeftovers(ctx) })
	container := fmt.Sprintf("%s%d-%08x", containerPrefix, time.Now().Unix(), rand.Uint32())
	args := []string{connectTimeout, "run", "--rm", "--read-only", "--cgroup=/" + container, "--fifo-dir=" + fifos}
	if p.dir != "" {
		args = append(args, fmt.Sprintf("--mount=type=bind,src=%s,dst=%s,options=rbind:rw", p.dir, i.inside(p.dir)))
	}

	args = append(append(args, i.reference, container, i.path), p.args...)
	end := execute(ctx, process{
		path: "ctr", args: args, env: ctrEnv(), deadline: p.deadline,
		stop: func(running func() bool) error { return i.kill(container, running) },
	}, out)
	if end.err != nil {
		i.remove(container)
		return end
	}

	message, ctrFailed := strings.CutPrefix(out.last, "ctr: ")
	switch {
	case end.code != 0 && ctrFailed:
		return exitStatus{err: fmt.Errorf("containerd did not run the image %s: %s", i.reference, oneLine(message))}
	case end.code > 128:
		return exitStatus{err: fmt.Errorf("it died: signal: %s", syscall.Signal(end.code-128))}
	default:
		return end
	}
}

// kill ends the container's task, which may still be starting, so that the
// waiting ctr exits and removes its resources.
func (i *image) kill(container string, running func() bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	for running() {
		_, err := i.ctr(ctx, "tasks", "kill", "--signal=SIGKILL", container)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}

	return nil
}

// remove removes the resources of a ctr that did not exit by itself.
func (i *image) remove(container string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*ctrTimeout)
	defer cancel()
	_, err := i.ctr(ctx, "containers", "info", container)
	if err == nil {
		_, _ = i.ctr(ctx, "tasks", "rm", "--force", container) // fails if there is none
		_, err = i.ctr(ctx, "containers", "rm", container)
		if err != nil {
			i.log.Warn("could not remove the container of a dry run", "container", container, "err", err)
		}
	}

	_, _ = i.ctr(ctx, "snapshots", "rm", container) // what is made before the container
}

// removeLeftovers removes containers of killed processes. Younger ones may
// belong to a dry run of another process.
func (i *image) removeLeftovers(ctx context.Context) {
	listed, err := i.ctr(ctx, "containers", "ls", "-q", "id~=^"+containerPrefix)
	if err != nil {
		return // the next use reports the error
	}

	for container := range strings.FieldsSeq(listed) {
		made, _, _ := strings.Cut(strings.TrimPrefix(container, containerPrefix), "-")
		if unix, err := strconv.ParseInt(made, 10, 64); err == nil && time.Since(time.Unix(unix, 0)) > time.Hour {
			i.remove(container)
		}
	}
}

const connectTimeout = "--connect-timeout=1s" // the default is 10 s

// ctr runs a ctr command and returns its output; an error has ctr's message.
func (i *image) ctr(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, ctrTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ctr", append([]string{connectTimeout}, args...)...)
	cmd.Env = ctrEnv()
	newProcessGroup(cmd) // an interrupt from the terminal must not stop the cleanup
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	message := oneLine(strings.TrimPrefix(strings.TrimSpace(string(out)), "ctr: "))
	switch {
	case err == nil:
		return string(out), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("ctr not found in PATH: install containerd")
	case ctx.Err() != nil:
		return "", ctx.Err()
	case strings.HasPrefix(message, "failed to dial"):
		return "", fmt.Errorf("%s (run as root; set CONTAINERD_ADDRESS if the socket is elsewhere)", message)
	case message == "":
		return "", err
	default:
		return "", errors.New(message)
	}
}

func ctrNamespace() string { return cmp.Or(os.Getenv("CONTAINERD_NAMESPACE"), "k8s.io") }

func ctrEnv() []string { return append(dryRunEnv(""), "CONTAINERD_NAMESPACE="+ctrNamespace()) }
