package component

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// images are the components that there are images of.
var images = map[string]func(reference, scratchDir string, log *slog.Logger) *binary{
	"kube-proxy": newKubeProxyImage,
}

// NewImage returns the component of a name as it is in a container image, which is run by containerd, asked by its own
// ctr: that is found in PATH, and heeds CONTAINERD_ADDRESS, CONTAINERD_SNAPSHOTTER and CONTAINERD_NAMESPACE ("k8s.io",
// where the kubelet's images are, if that is not set). Nothing is ever pulled: of an image that is not there, as without
// containerd, nothing can be told, and the words say what to do. The error names what is wrong: no component of that
// name, or one that there is no image of, or no reference.
func NewImage(name, reference, scratchDir string, log *slog.Logger) (Component, error) {
	component, ok := images[name]
	switch {
	case !ok && components[name] != nil:
		return nil, fmt.Errorf("there is no image of a %s: name its program, --component-binary %s=PATH", name, name)
	case !ok:
		return nil, unknown(name)
	case reference == "" || reference[0] == '-' || strings.ContainsFunc(reference, func(r rune) bool { return r <= ' ' }):
		return nil, fmt.Errorf("%q is no reference of an image, such as registry.k8s.io/%s:v1.37.1", reference, name)
	}
	scratchDir, err := filepath.Abs(scratchDir) // containerd mounts it
	if err != nil {
		return nil, fmt.Errorf("scratch directory: %w", err)
	}
	return component(reference, scratchDir, log), nil
}

// image runs a program of a container image: without the host's network, without privileges, on a root file system that
// it cannot write to. Of this host it finds the directory of its process, and nothing else.
type image struct {
	reference string
	path      string // of the program, in the image
	scratch   string
	log       *slog.Logger

	tidy sync.Once
}

func (i *image) identify(ctx context.Context) (Identity, error) {
	listed, err := i.ctr(ctx, "images", "ls", "name=="+strconv.Quote(i.reference))
	if err != nil {
		return Identity{}, fmt.Errorf("containerd cannot be asked for the image %s: %w", i.reference, err)
	}
	for line := range strings.Lines(listed) { // the header, and then name, type, digest and more
		if f := strings.Fields(line); len(f) > 2 && f[0] == i.reference && strings.Contains(f[2], ":") {
			return Identity{Path: f[2]}, nil
		}
	}
	namespace := ctrNamespace()
	return Identity{}, fmt.Errorf("containerd has no image %s in its namespace %s: ctr -n %s images pull %s",
		i.reference, namespace, namespace, i.reference)
}

// inside has a name that no configuration has: it is taken out of the program's words.
func (i *image) inside(dir string) string { return "/" + filepath.Base(dir) }

const (
	containerPrefix = "evenkeel-dryrun-"
	ctrTimeout      = 5 * time.Second
	stopGrace       = 5 * time.Second
)

func (i *image) run(ctx context.Context, _ Identity, p process, out *transcript) ending {
	fifos, err := makeScratch(i.scratch) // those of a ctr that was killed would stay elsewhere
	if err != nil {
		return ending{err: fmt.Errorf("no scratch directory: %w", err)}
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
	words, itsOwn := strings.CutPrefix(out.lastLine(), "ctr: ")
	switch {
	case end.code != 0 && itsOwn:
		return ending{err: fmt.Errorf("containerd did not run the image %s: %s", i.reference, oneLine(words))}
	case end.code > 128:
		return ending{err: fmt.Errorf("it died: signal: %s", syscall.Signal(end.code-128))}
	default:
		return end
	}
}

// kill ends the container's task, which may only be about to start, so that the ctr that waits for it ends, too, and
// removes all that it made.
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

// remove removes what a ctr that did not come to its own end may have left.
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

// removeLeftovers clears away the containers of processes that were killed. The age spares those of others that run now.
func (i *image) removeLeftovers(ctx context.Context) {
	listed, err := i.ctr(ctx, "containers", "ls", "-q", "id~=^"+containerPrefix)
	if err != nil {
		return // whoever asks next will say it
	}
	for _, container := range strings.Fields(listed) {
		made, _, _ := strings.Cut(strings.TrimPrefix(container, containerPrefix), "-")
		if unix, err := strconv.ParseInt(made, 10, 64); err == nil && time.Since(time.Unix(unix, 0)) > time.Hour {
			i.remove(container)
		}
	}
}

const connectTimeout = "--connect-timeout=1s" // of itself it tries for 10 s

// ctr returns what a ctr says that is run to its end; the error is in its words.
func (i *image) ctr(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, ctrTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ctr", append([]string{connectTimeout}, args...)...)
	cmd.Env = ctrEnv()
	ownGroup(cmd) // an interrupt from the terminal must not end what removes
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	words := oneLine(strings.TrimPrefix(strings.TrimSpace(string(out)), "ctr: "))
	switch {
	case err == nil:
		return string(out), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("there is no ctr in PATH; it comes with containerd")
	case ctx.Err() != nil:
		return "", ctx.Err()
	case strings.HasPrefix(words, "failed to dial"):
		return "", fmt.Errorf("%s (CONTAINERD_ADDRESS says where it is; it takes root)", words)
	case words == "":
		return "", err
	default:
		return "", errors.New(words)
	}
}

func ctrNamespace() string {
	if namespace := os.Getenv("CONTAINERD_NAMESPACE"); namespace != "" {
		return namespace
	}
	return "k8s.io"
}

func ctrEnv() []string {
	env := slices.DeleteFunc(dryRunEnv(""), func(kv string) bool { return strings.HasPrefix(kv, "CONTAINERD_NAMESPACE=") })
	return append(env, "CONTAINERD_NAMESPACE="+ctrNamespace())
}
