package cli

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/program"
)

// output is what a running command has printed.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return squeezeSpaces(o.text.String())
}

// waitFor waits until the output has a text this number of times.
func (o *output) waitFor(t *testing.T, text string, times int) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return strings.Count(o.String(), text) >= times, nil
	})
	if err != nil {
		t.Fatalf("no %q, %d times, in:\n%s", text, times, o)
	}
}

// watching runs a command until interrupt is called, which requires exit code 0.
func watching(t *testing.T, kubeconfig string, args ...string) (out, errOut *output, interrupt func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, errOut = &output{}, &output{}
	done := make(chan int, 1)
	go func() {
		streams := genericclioptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut}
		done <- Run(ctx, program.NewInfo("kubectl-evenkeel", "v0.0.0-test", "0123abcd"), append(args, "--kubeconfig", kubeconfig), streams)
	}()
	return out, errOut, func() {
		t.Helper()
		cancel()
		if code := <-done; code != command.ExitComplete {
			t.Errorf("the interrupted command ended with %d: %s", code, errOut)
		}
	}
}

func TestNodesAreWatched(t *testing.T) {
	createNode(t, "watched-a", "watched", "z1")
	nc := createNodeConfig(t, "watched-a", nil, nil)
	b := createNode(t, "watched-b", "watched", "z1")
	table, notes, endTable := watching(t, cluster.AdminKubeconfig(), "nodes", "-w", "-l", "pool=watched")
	lines, _, endLines := watching(t, cluster.AdminKubeconfig(), "nodes", "-w", "-o", "json", "-l", "pool=watched")
	failed, _, endFailed := watching(t, cluster.AdminKubeconfig(), "nodes", "-w", "-o", "name", "--failed", "-l", "pool=watched")
	table.waitFor(t, "watched-b Unknown ", 1)
	lines.waitFor(t, `"name":"watched-b"`, 1)

	failing(&nc.Status, "CrashLooped", "it crash-looped")
	if err := admin.Status().Update(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	table.waitFor(t, "watched-a Failed ", 1)
	lines.waitFor(t, `"name":"watched-a"`, 2)
	failed.waitFor(t, "node/watched-a", 1)
	if err := admin.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	notes.waitFor(t, "note: node watched-b is no longer listed", 1)
	createNode(t, "watched-b", "watched", "z1")
	table.waitFor(t, "watched-b Unknown ", 2)

	endTable()
	endLines()
	endFailed()
	if got := table.String(); strings.Count(got, "NAME HEALTH ") != 1 || strings.Count(got, "watched-a ") != 2 {
		t.Errorf("not one header and one line for each change:\n%s", got)
	}
	for line := range strings.Lines(lines.String()) {
		if !strings.HasPrefix(line, `{"name":"watched-`) || !strings.HasSuffix(line, "}\n") {
			t.Errorf("%q is no object in one line", line)
		}
	}
}

func TestNodesOfARolloutAreWatched(t *testing.T) {
	createNode(t, "turns-a", "turns", "z1")
	createNodeConfig(t, "turns-a", nil, nil)
	createRollout(t, "turns", "turns", pods(50), nil)
	out, _, end := watching(t, cluster.AdminKubeconfig(), "nodes", "-w", "--rollout", "turns")
	out.waitFor(t, "turns-a Healthy ", 1)
	createNode(t, "turns-b", "turns", "z1")
	out.waitFor(t, "turns-b Unknown ", 1)
	end()
	if got := out.String(); strings.Count(got, "turns-a ") != 1 {
		t.Errorf("a node that did not change has several lines:\n%s", got)
	}
}

func TestRolloutsAreWatched(t *testing.T) {
	for _, tt := range []struct {
		name, first, changed string
		args                 []string
	}{
		{"table", "looked-at - Unseen ", "looked-at - Halted ", nil},
		{"JSON", `"name":"looked-at"`, `"phase":"Halted"`, []string{"-o", "json"}},
		{"YAML", "---\napiVersion: evenkeel.dev/v1alpha1\n", "phase: Halted\n", []string{"-o", "yaml"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, notes, end := watching(t, cluster.AdminKubeconfig(), append([]string{"rollout", "list", "-w"}, tt.args...)...)
			r := createRollout(t, "looked-at", "looked-at", pods(50), nil)
			out.waitFor(t, tt.first, 1)
			r.Status.Phase, r.Status.ObservedGeneration = v1alpha1.RolloutHalted, r.Generation
			if err := admin.Status().Update(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			out.waitFor(t, tt.changed, 1)
			if err := admin.Delete(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			notes.waitFor(t, "note: rollout looked-at is no longer listed", 1)
			end()
		})
	}
}

func TestAWatchSurvivesARestartOfTheAPIServer(t *testing.T) {
	createNode(t, "outlives-a", "outlives", "z1")
	nodes, notes, endNodes := watching(t, cluster.AdminKubeconfig(), "nodes", "-w", "-l", "pool=outlives")
	rollouts, _, endRollouts := watching(t, cluster.AdminKubeconfig(), "rollout", "list", "-w")
	nodes.waitFor(t, "outlives-a ", 1)
	if err := cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	notes.waitFor(t, "waiting for the API server: the API server cannot be reached: 127.0.0.1:", 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := cluster.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	createNode(t, "outlives-b", "outlives", "z1")
	createRollout(t, "outlives", "outlives", pods(50), nil)
	nodes.waitFor(t, "outlives-b ", 1)
	rollouts.waitFor(t, "outlives ", 1)
	endNodes()
	endRollouts()
	if got := nodes.String(); strings.Count(got, "outlives-a ") != 1 {
		t.Errorf("a node that did not change has several lines:\n%s", got)
	}
}

func TestAWatchNeedsPermission(t *testing.T) {
	nobody := userOf(t, "watcher")
	for _, args := range [][]string{{"nodes", "-w"}, {"rollout", "list", "-w"}} {
		wants(t, evenkeelAs(t, nobody, args...), "is forbidden", "evenkeel's role evenkeel-view includes this permission")
	}
}
