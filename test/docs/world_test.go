package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/rehearsal"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

const (
	root = "../.."
	// most is how long a command may take. Those of the documentation that wait, wait for trials of a few seconds.
	most = 2 * time.Minute
)

// world is what the reader of a page has: a cluster that has nothing of evenkeel yet, an administrator's kubeconfig in
// ~/.kube/config, the upstream tools on the PATH, and the repository as the working directory, with its programs in bin.
type world struct {
	t       *testing.T
	cluster *localcluster.Cluster
	kube    kubernetes.Interface
	workdir string
	fleets  []*rehearsal.Fleet
	session *Session // of the page that is read
	// instead stands in for commands that are skipped, by how they begin: what they would have left is made.
	instead map[string]func(context.Context) error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, workdir: t.TempDir(), instead: map[string]func(context.Context) error{}}
	nothing := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	klog.SetLogger(logr.Discard()) // watches that end with their cluster
	var err error
	if w.cluster, err = localcluster.Start(ctx, localcluster.Options{Manifests: nothing}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var errs []error
		for _, f := range w.fleets {
			errs = append(errs, f.Stop())
		}
		if err := errors.Join(append(errs, w.cluster.Stop())...); err != nil {
			t.Error(err)
		}
	})
	if w.kube, err = kubernetes.NewForConfig(w.cluster.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if err := w.furnish(); err != nil {
		t.Fatal(err)
	}
	return w
}

// furnish makes the working directory: the repository, as far as pages use it, without what commands write into it.
func (w *world) furnish() error {
	repository, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	bin := filepath.Join(w.workdir, "bin")
	errs := []error{os.Mkdir(bin, 0o700), os.Symlink(filepath.Join(repository, "config"), filepath.Join(w.workdir, "config"))}
	for _, name := range []string{"kubectl-evenkeel", "evenkeel-hollow", "evenkeel-controller"} {
		program := filepath.Join(repository, "bin", name)
		if _, err := os.Stat(program); err != nil {
			errs = append(errs, fmt.Errorf("%w: run make build", err))
			continue
		}
		flags := ""
		if name == "evenkeel-controller" { // another program of this machine may have the ports that it listens on
			flags = " --metrics-bind-address=0 --health-probe-bind-address=0"
		}
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"%s\n", program, flags)
		errs = append(errs, os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700))
	}
	kubeconfig, err := os.ReadFile(w.cluster.AdminKubeconfig())
	errs = append(errs, err, os.Mkdir(filepath.Join(w.workdir, ".kube"), 0o700),
		os.WriteFile(filepath.Join(w.workdir, ".kube", "config"), kubeconfig, 0o600))
	return errors.Join(errs...)
}

// nodes starts nodes that exist in the API alone, with real agents: PREFIX-0 and so on. They crash with maxPods 7.
func (w *world) nodes(prefix string, n int, labels map[string]string, trialDuration time.Duration) error {
	o := rehearsal.Options{
		Config: w.cluster.AdminConfig(), Nodes: n, Prefix: prefix + "-", Labels: labels,
		Limits: trial.Limits{TrialDuration: trialDuration, CrashLoopThreshold: 1, HealthTimeout: 20 * time.Second, ReadyTimeout: 30 * time.Second},
		Faults: []rehearsal.Fault{{Kind: rehearsal.CrashLoop, Field: "maxPods", Value: "7"}},
	}
	var last error
	err := wait.PollUntilContextTimeout(w.t.Context(), 100*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		var f *rehearsal.Fleet
		// The API server serves a CRD, and knows a right, a moment after they were applied.
		if f, last = rehearsal.Start(w.t.Context(), o); last == nil {
			w.fleets = append(w.fleets, f)
		}
		return last == nil || !strings.Contains(last.Error(), "apply config/default first"), nil
	})
	return errors.Join(err, last)
}

// node1 starts node-1 alone.
func (w *world) node1(ctx context.Context) error {
	// The page shows its trial: it must be long enough to be reported.
	if err := w.nodes("node", 2, nil, 3*time.Second); err != nil {
		return err
	}
	if err := w.fleets[len(w.fleets)-1].Remove(ctx, "node-0"); err != nil {
		return err
	}
	return w.kube.CoreV1().RESTClient().Delete().AbsPath("/apis/evenkeel.dev/v1alpha1/nodeconfigs/node-0").Do(ctx).Error()
}

// read types the commands of a page, or of one of its sections, and fails the test for each that does not do what the page
// says. What is skipped is counted by its reason.
func (w *world) read(file, section string) {
	t := w.t
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if section != "" {
		if text, err = Section(text, section); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	commands, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	tools, err := filepath.Abs(filepath.Join(root, "bin", "tools"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSession(w.workdir, t.TempDir(), "HOME="+w.workdir, "KUBECTL_KUBERC=false", "LC_ALL=C.UTF-8",
		"PATH="+tools+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	w.session = s
	executed, skipped := 0, map[string]int{}
	for _, c := range commands {
		if c.Skip != "" {
			skipped[c.Skip]++
			w.standIn(file, c)
			continue
		}
		executed++
		if !w.types(s, file, c) {
			break // the commands after it build on it
		}
	}
	total := 0
	for _, reason := range Reasons {
		t.Logf("%s: %d commands skipped: %s", file, skipped[reason], reason)
		total += skipped[reason]
	}
	t.Logf("%s: %d of %d commands executed, %d skipped", file, executed, len(commands), total)
	if executed == 0 {
		t.Errorf("%s: no command was executed", file)
	}
}

// standIn makes what a command would have left that is skipped.
func (w *world) standIn(file string, c Command) {
	w.t.Helper()
	for prefix, make := range w.instead {
		if !strings.HasPrefix(c.Text, prefix) {
			continue
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), most)
		defer cancel()
		if err := make(ctx); err != nil {
			w.t.Fatalf("%s:%d: instead of %s: %v", file, c.Line, c.Text, err)
		}
		delete(w.instead, prefix)
		return
	}
}

// types types one command, and reports whether it did what the page says.
func (w *world) types(s *Session, file string, c Command) bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), most)
	defer cancel()
	begun := time.Now()
	if c.Keeps {
		if err := s.Keep(ctx, c.Text); err != nil {
			w.t.Errorf("%s:%d: %s: %v", file, c.Line, c.Text, err)
			return false
		}
		return true
	}
	out, code, err := s.Run(ctx, c.Text)
	switch {
	case err != nil:
		w.t.Errorf("%s:%d: %s: %v\n%s", file, c.Line, c.Text, err, out)
		return false
	case code != c.Exit:
		w.t.Errorf("%s:%d: %s: exit code %d, want %d:\n%s", file, c.Line, c.Text, code, c.Exit, out)
		return false
	}
	if err := Compare(c.Output, out); err != nil {
		w.t.Errorf("%s:%d: %s: %v", file, c.Line, c.Text, err)
	}
	w.t.Logf("%s:%d: %s (%s)\n%s", file, c.Line, c.Text, time.Since(begun).Round(10*time.Millisecond), out)
	return true
}

// apply installs evenkeel's API, as the page before has it.
func (w *world) apply(ctx context.Context) error {
	if err := w.cluster.Apply(ctx, filepath.Join(root, "config", "api")); err != nil {
		return err
	}
	_, err := w.kube.CoreV1().Namespaces().Get(ctx, "evenkeel-system", metav1.GetOptions{})
	return err
}
