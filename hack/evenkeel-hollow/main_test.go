// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// asMain makes this test binary the program.
const asMain = "EVENKEEL_HOLLOW_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		os.Exit(0)
	}

	os.Exit(m.Run())
}

func runMain(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asMain+"=1", "KUBECONFIG="+filepath.Join(t.TempDir(), "none"), "HOME="+t.TempDir())
	return cmd
}

func TestWrongUsageNamesTheRightOne(t *testing.T) {
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"--fault=lazy", program.ExitUsage, `--fault: fault "lazy": unknown kind "lazy": use reject, crashloop`},
		{"--fault=slow", program.ExitUsage, "slow needs a duration: slow=5s"},
		{"--fault=crashloop=5s", program.ExitUsage, "only slow has a value"},
		{"--fault=reject,share=200%", program.ExitUsage, "share must be a percentage above 0% and up to 100%"},
		{"--join=5", program.ExitUsage, "--join must be NODES@AFTER, such as 50@1m"},
		{"--leave=0@1m", program.ExitUsage, "--leave must be NODES@AFTER"},
		{"--reboot=1m", program.ExitUsage, "--reboot must be NODES@AFTER"},
		{"--reset=2@soon", program.ExitUsage, "--reset must be NODES@AFTER"},
		{"--reboot-time=0s", program.ExitUsage, "--reboot-time must be longer than 0"},
		{"--nodes=-1", program.ExitUsage, "--nodes must not be negative"},
		{"--zones=-1", program.ExitUsage, "--zones must not be negative"},
		{"--trial-duration=0s", program.ExitUsage, "--trial-duration must be longer than 0"},
		{"--lease-period=-1s", program.ExitUsage, "--lease-period must not be negative"},
		{"--crash-loop-threshold=11", program.ExitUsage, "must be 0 to 10"},
		{"--name-prefix=Big_", program.ExitUsage, `--name-prefix "Big_"`},
		{"--label=pool", program.ExitUsage, `--label "pool": not key=value`},
		{"--label=a=b/c", program.ExitUsage, `--label "a=b/c": a valid label`},
		{"--bogus", program.ExitUsage, "unknown flag: --bogus; see evenkeel-hollow --help"},
		{"run", program.ExitUsage, `evenkeel-hollow takes no arguments, got ["run"]`},
		{"--kubeconfig=/nonexistent", program.ExitError, "read the kubeconfig, see --kubeconfig"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			out, err := runMain(t, tt.args).CombinedOutput()
			var exit *exec.ExitError
			assert.That(t, errors.As(err, &exit) && exit.ExitCode() == tt.code && strings.Contains(string(out), tt.want),
				"got %v and %q, want %d and %q", err, out, tt.code, tt.want)
		})
	}
}

func TestVersionAndHelp(t *testing.T) {
	for arg, want := range map[string]string{"--version": version, "--help": "--fault=crashloop,share=10%"} {
		out, err := runMain(t, arg).CombinedOutput()
		assert.That(t, err == nil && strings.Contains(string(out), want), "%s: %v: %s", arg, err, out)
	}
}

// aCluster starts a cluster for the test, and returns it with an administrator
// client.
func aCluster(t *testing.T) (*localcluster.Cluster, client.Client) {
	t.Helper()
	cluster := localcluster.StartForTest(t, localcluster.Options{})
	scheme := runtime.NewScheme()
	assert.NoError(t, errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)))
	kube := assert.Value(client.New(cluster.AdminConfig(), client.Options{Scheme: scheme}))(t)

	return cluster, kube
}

func TestNodesJoinLeaveAndRebootAndAreCleanedUp(t *testing.T) {
	cluster, kube := aCluster(t)
	dir := filepath.Join(t.TempDir(), "state")
	cmd := runMain(t, "--kubeconfig="+cluster.AdminKubeconfig(), "--nodes=5", "--zones=2", "--label=pool=a", "--dir="+dir,
		"--fault=silent,node=hollow-4", "--join=2@1s", "--leave=1@2s", "--reboot=2@4s", "--reset=1@12s", "--reboot-time=3s")
	stdout := assert.Value(cmd.StdoutPipe())(t)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	assert.NoError(t, cmd.Start())
	seen := bufio.NewScanner(stdout)
	for _, want := range []string{"5 nodes: 4 LocalDefault, 1 silent", "6 nodes: 5 LocalDefault, 1 silent",
		"6 nodes: 3 LocalDefault, 3 silent", "6 nodes: 5 LocalDefault, 1 silent", "6 nodes: 4 LocalDefault, 2 silent", "6 nodes: 5 LocalDefault, 1 silent"} {
		found := ""
		for found != want && seen.Scan() {
			_, found, _ = strings.Cut(strings.TrimSpace(seen.Text()), "  ")
		}
		if found != want {
			t.Fatalf("never: %q\n%s", want, stderr.String())
		}
	}

	nodes := &corev1.NodeList{}
	if err := kube.List(t.Context(), nodes, client.MatchingLabels{"pool": "a", "evenkeel.dev/hollow": "true"}); err != nil || len(nodes.Items) != 6 {
		t.Errorf("there are %d Nodes: %v", len(nodes.Items), err)
	}

	assert.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for seen.Scan() { // Wait closes the pipe
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v\n%s", err, stderr.String())
	}

	assert.Equal(t, left(t.Context(), kube), "", "left behind")
	assert.OK(t, assert.Err(os.Stat(filepath.Join(dir, "hollow-1"))), "the state must be kept")
}

// left describes the hollow nodes that still exist after at most 10 s; "" if
// there are none.
func left(ctx context.Context, kube client.Client) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		nodes, configs := &corev1.NodeList{}, &v1alpha1.NodeConfigList{}
		leases := &metav1.PartialObjectMetadataList{}
		leases.SetGroupVersionKind(leaseList)
		err := errors.Join(kube.List(ctx, nodes), kube.List(ctx, configs), kube.List(ctx, leases, client.InNamespace("kube-node-lease")))
		if err == nil && len(nodes.Items)+len(configs.Items)+len(leases.Items) == 0 {
			return ""
		}
		if ctx.Err() != nil {
			return fmt.Sprintf("%d Nodes, %d NodeConfigs, %d Leases, %v", len(nodes.Items), len(configs.Items), len(leases.Items), err)
		}
	}
}

var leaseList = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "LeaseList"}

func TestCleanupAfterABrokenPipeOrAnOutageOfTheAPIServer(t *testing.T) {
	cluster, kube := aCluster(t)
	start := func(args ...string) (cmd *exec.Cmd, stdout, stderr *bufio.Scanner) {
		cmd = runMain(t, append(args, "--kubeconfig="+cluster.AdminKubeconfig())...)
		out, err := cmd.StdoutPipe()
		assert.NoError(t, err)
		errOut := assert.Value(cmd.StderrPipe())(t)
		assert.NoError(t, cmd.Start())

		return cmd, bufio.NewScanner(out), bufio.NewScanner(errOut)
	}

	cmd, stdout, stderr := start("--nodes=2", "--join=1@3s")
	for stdout.Scan() && !strings.Contains(stdout.Text(), "2 nodes: 2 ") {
	}
	assert.NoError(t, cluster.StopAPIServer())
	told := false
	for !told && stderr.Scan() {
		told = strings.Contains(stderr.Text(), "some nodes did not join")
	}

	assert.That(t, told, "no error about the nodes that could not join")
	assert.NoError(t, cluster.StartAPIServer(t.Context()))
	assert.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for stderr.Scan() {
	}
	assert.OK(t, cmd.Wait(), "it ended with")
	assert.Equal(t, left(t.Context(), kube), "", "left behind after the API server was away")

	reader, writer, err := os.Pipe()
	assert.NoError(t, err)
	reader.Close()
	defer writer.Close()
	cmd = runMain(t, "--nodes=2", "--kubeconfig="+cluster.AdminKubeconfig())
	cmd.Stdout = writer
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != program.ExitError {
		t.Errorf("without a reader it ended with %v, want exit code %d", err, program.ExitError)
	}

	assert.Equal(t, left(t.Context(), kube), "", "left behind without a reader")
}
