// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/hollow"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

const (
	root = "../.."
	// most is how long a command may take. Commands that wait for nodes wait
	// for trials of a few seconds.
	most = 2 * time.Minute
	// version is the version of evenkeel on the pages.
	version = "v0.1.0"
)

// built is the directory of evenkeel's programs; empty: they are not built.
var built string

// names are those of evenkeel's programs that pages use.
var names = []string{"kubectl-evenkeel", "evenkeel-controller", "evenkeel-hollow", "evenkeel-agent"}

// programs builds evenkeel's programs as a release of that version, once.
var programs = sync.OnceValue(func() error {
	// make build makes these from the same source. go test notes that the test
	// has looked at them, and so does not take a result from its cache when a
	// program has changed.
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(root, "bin", name)); err != nil {
			return fmt.Errorf("%w: run make build", err)
		}
	}

	dir, err := os.MkdirTemp("", "evkdocs-")
	if err != nil {
		return err
	}

	built = dir
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+version+
		" -X main.commit="+strings.Repeat("0", 40), "-o", dir+"/", "./cmd/...", "./hack/evenkeel-hollow")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w: %s", err, out)
	}

	return nil
})

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())      // watches that end with their cluster
	code := localcluster.RunWithPool(m) // every page has a control plane
	if built != "" {
		_ = os.RemoveAll(built)
	}

	os.Exit(code)
}

// world is the reader's environment: the repository as the working directory,
// with its programs in bin, and these and the upstream tools on the PATH. A
// page's setup adds the rest.
type world struct {
	t       *testing.T
	cluster *localcluster.Cluster
	kube    kubernetes.Interface
	workdir string
	fleets  []*hollow.Fleet
	session *Session // in which the page is read
	// instead has, by the beginning of a skipped command, steps that leave what
	// the command would have left.
	instead map[string][]step
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, workdir: t.TempDir(), instead: map[string][]step{}}
	w.furnish()
	tools := assert.Value(filepath.Abs(filepath.Join(root, "bin", "tools")))(t)
	w.session = assert.Value(NewSession(w.workdir, t.TempDir(), "HOME="+w.workdir, "KUBECTL_KUBERC=false", "LC_ALL=C.UTF-8",
		"PATH="+strings.Join([]string{filepath.Join(w.workdir, "bin"), tools, os.Getenv("PATH")}, ":")))(t)

	return w
}

// ok ends the test of the page after an error.
func (w *world) ok(err error) {
	w.t.Helper()
	assert.NoError(w.t, err)
}

func (w *world) take(steps []step) {
	for _, step := range steps {
		step(w)
	}
}

// furnish makes the working directory: the repository, without what is built or
// written there.
func (w *world) furnish() {
	w.t.Helper()
	repository := assert.Value(filepath.Abs(root))(w.t)
	bin := filepath.Join(w.workdir, "bin")
	w.ok(os.Mkdir(bin, 0o700))
	for _, e := range assert.Value(os.ReadDir(repository))(w.t) {
		from, to := filepath.Join(repository, e.Name()), filepath.Join(w.workdir, e.Name())
		switch name := e.Name(); {
		case strings.HasPrefix(name, ".") || name == "bin" || name == "dist":
		case name == "config" || name == "charts": // pages write there, and the cache of go test notes what is read
			w.ok(os.CopyFS(to, os.DirFS(from)))
		default:
			w.ok(os.Symlink(from, to))
		}
	}

	w.ok(programs())
	for _, name := range names {
		if name != "evenkeel-controller" {
			w.ok(os.Symlink(filepath.Join(built, name), filepath.Join(bin, name)))
		}
	}

	// Another program of this machine may have the ports that it listens on.
	controller := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\" --metrics-bind-address=0 --health-probe-bind-address=0\n", filepath.Join(built, "evenkeel-controller"))
	w.writeScript("bin/evenkeel-controller", controller)
}

// write writes a file of the working directory.
func (w *world) write(name, content string) {
	w.t.Helper()
	w.ok(os.WriteFile(filepath.Join(w.workdir, name), []byte(content), 0o600))
}

// writeScript writes a script into the working directory.
func (w *world) writeScript(name, content string) {
	w.t.Helper()
	w.ok(os.WriteFile(filepath.Join(w.workdir, name), []byte(content), 0o700))
}

// linkTool links an upstream program into the working directory under another
// name.
func (w *world) linkTool(path, name string) {
	w.t.Helper()
	path = assert.Value(filepath.Abs(filepath.Join(root, "bin", "tools", path)))(w.t)
	w.ok(os.Symlink(path, filepath.Join(w.workdir, name)))
}

// startCluster starts a cluster that has nothing of evenkeel yet, with an
// administrator's kubeconfig in ~/.kube/config.
func (w *world) startCluster() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), most)
	defer cancel()
	cluster := assert.Value(localcluster.Borrow(ctx, localcluster.Options{Manifests: localcluster.NoManifests}))(w.t)
	w.t.Cleanup(func() {
		for _, f := range w.fleets {
			assert.OK(w.t, f.Stop())
		}

		assert.OK(w.t, cluster.Stop())
	})
	w.cluster = cluster
	w.kube = assert.Value(kubernetes.NewForConfig(cluster.AdminConfig()))(w.t)
	w.ok(os.MkdirAll(filepath.Join(w.workdir, ".kube"), 0o700))
	w.write(".kube/config", string(assert.Value(os.ReadFile(cluster.AdminKubeconfig()))(w.t)))
}

// hollowNodes starts nodes that exist in the API alone, with real agents:
// PREFIX-0 and so on. They crash with maxPods 7, as pages about rehearsals set
// it, and like real ones if they reserve more than they have.
func (w *world) hollowNodes(o hollow.Options) {
	w.t.Helper()
	o.Config = w.cluster.AdminConfig()
	o.Version = cmp.Or(o.Version, version)
	o.Limits.CrashLoopThreshold = 3
	o.Faults = []hollow.Fault{
		{Kind: hollow.CrashLoop, Field: "maxPods", Value: "7"},
		{Kind: hollow.CrashLoop, Field: "kubeReserved.ephemeral-storage", Value: "100Ti"},
	}
	var last error
	err := wait.PollUntilContextTimeout(w.t.Context(), 100*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		var f *hollow.Fleet
		// The API server serves a CRD, and knows a right, a moment after they
		// were applied.
		if f, last = hollow.Start(w.t.Context(), o); last == nil {
			w.fleets = append(w.fleets, f)
		}

		return last == nil || !strings.Contains(last.Error(), "apply install.yaml first"), nil
	})

	w.ok(errors.Join(err, last))
}

// pool is the label of the nodes that the documentation rolls out to.
var pool = map[string]string{"node-restriction.kubernetes.io/pool": "workers"}

// trialOf returns limits with this duration of a trial.
func trialOf(d time.Duration) trial.Limits { return trial.Limits{TrialDuration: d} }

// hollowNode starts the node PREFIX-1 alone.
func (w *world) hollowNode(prefix string) {
	w.t.Helper()
	// A page shows its trial: it must be long enough to be reported.
	w.hollowNodes(hollow.Options{Prefix: prefix + "-", Nodes: 2, Limits: trialOf(3 * time.Second)})
	w.ok(w.fleets[len(w.fleets)-1].Remove(w.t.Context(), prefix+"-0"))
	w.ok(w.kube.CoreV1().RESTClient().Delete().AbsPath("/apis/evenkeel.dev/v1alpha1/nodeconfigs/" + prefix + "-0").Do(w.t.Context()).Error())
}

// realNode makes node-1 of a real containerd and a real kubelet, and gives the
// session its paths. It returns the agent to run the kubelet with, not yet
// started. Without root, or without containerd, the test is skipped.
func (w *world) realNode() *bed.Agent {
	w.t.Helper()
	b, err := bed.On(w.t.Context(), w.cluster, "node-1")
	if errors.Is(err, localcluster.ErrNoNode) {
		w.t.Skip("no real node can run here: ", err)
	}

	w.ok(err)
	b.Binary = filepath.Join(w.workdir, "bin", "evenkeel-agent")
	a := assert.Value(b.Agent())(w.t)
	w.mountNode(a.Dir, string(assert.Value(os.ReadFile(b.Node.KubeletConfig()))(w.t)))

	return a
}

// mountNode gives the session a node's paths, in a mount namespace of its own:
// a kubelet in /usr/bin, its configuration in /var/lib/kubelet, and the agent's
// directory dir as /var/lib/evenkeel. Without root the test is skipped.
func (w *world) mountNode(dir, own string) {
	w.t.Helper()
	if os.Geteuid() != 0 {
		w.t.Skip("only root can make a mount namespace")
	}

	node := w.t.TempDir()
	kubelet := assert.Value(filepath.Abs(filepath.Join(root, "bin", "tools", "kubelet")))(w.t)
	w.session.Mounts = fmt.Sprintf("mount -t overlay overlay -o 'lowerdir=%[1]s/bin:/usr/bin' /usr/bin && mount --bind '%[1]s/lib' /var/lib", node)

	w.ok(errors.Join(os.MkdirAll(filepath.Join(node, "bin"), 0o755), os.MkdirAll(filepath.Join(node, "lib", "kubelet"), 0o755),
		os.Symlink(kubelet, filepath.Join(node, "bin", "kubelet")), os.Symlink(dir, filepath.Join(node, "lib", "evenkeel")),
		os.WriteFile(filepath.Join(node, "lib", "kubelet", "config.yaml"), []byte(own), 0o600)))
}

// startAgent starts the agent of node-1 and waits for its NodeConfig. curl
// reaches the agent at the address of the page.
func (w *world) startAgent(a *bed.Agent) {
	w.t.Helper()
	w.ok(a.Start())
	w.t.Cleanup(func() {
		assert.OK(w.t, a.Stop(time.Minute))
		if log, err := os.ReadFile(a.Log); w.t.Failed() {
			w.t.Logf("the agent said (%v):\n%s", err, log)
		}
	})
	w.write(".curlrc", "connect-to = \"127.0.0.1:10269:"+a.Listen+"\"\n")
	w.ok(bed.Eventually(w.t.Context(), most, func(ctx context.Context) error {
		return w.kube.CoreV1().RESTClient().Get().AbsPath("/apis/evenkeel.dev/v1alpha1/nodeconfigs/node-1").Do(ctx).Error()
	}))
}

// controller starts evenkeel-controller and waits until it leads. It ends with
// the page.
func (w *world) controller() {
	w.t.Helper()
	w.ok(w.session.Keep(w.t.Context(), "evenkeel-controller --kubeconfig=$HOME/.kube/config", nil))
	w.run("kubectl wait -n evenkeel-system --for=create lease/evenkeel-controller && " +
		"kubectl wait -n evenkeel-system --for=jsonpath='{.spec.holderIdentity}' lease/evenkeel-controller")
}

// run executes a command that is not on the page.
func (w *world) run(text string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), most)
	defer cancel()
	out, code, err := w.session.Run(ctx, text)
	assert.Must(w.t, err == nil && code == 0, "%s: exit code %d, %v: %s", text, code, err, out)
}

// executePage executes the commands of a page, and fails the test for each that
// does not do what the page says.
func (w *world) executePage(file string, commands []Command) {
	w.t.Helper()
	for _, c := range commands {
		if c.NewCluster {
			w.startCluster()
		}

		if c.Skip != "" {
			w.standIn(file, c)
			continue
		}

		if !w.execute(file, c) {
			break // the commands after it build on it
		}
	}

	for prefix := range w.instead {
		w.t.Errorf("%s has no command any more that begins with %q and is skipped", file, prefix)
	}
}

// standIn makes what a skipped command would have left.
func (w *world) standIn(file string, c Command) {
	w.t.Helper()
	for prefix, steps := range w.instead {
		if strings.HasPrefix(c.Text, prefix) {
			w.t.Logf("%s:%d: instead of %s", file, c.Line, c.Text)
			w.take(steps)
			delete(w.instead, prefix)

			return
		}
	}
}

// execute executes one command of a page, and reports whether it did what the
// page says.
func (w *world) execute(file string, c Command) bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), most)
	defer cancel()
	begun := time.Now()
	if c.Keeps {
		err := w.session.Keep(ctx, c.Text, c.Output)
		assert.OK(w.t, err, file, c.Line, c.Text)
		return err == nil
	}

	out, code, err := w.session.Run(ctx, c.Text)
	if err != nil || code != c.Exit {
		w.t.Errorf("%s:%d: %s: exit code %d, want %d, %v:\n%s", file, c.Line, c.Text, code, c.Exit, err, out)
		return false
	}

	assert.OK(w.t, Compare(c.Output, out), file, c.Line, c.Text)
	w.t.Logf("%s:%d: %s (%s)\n%s", file, c.Line, c.Text, time.Since(begun).Round(10*time.Millisecond), out)

	return true
}
