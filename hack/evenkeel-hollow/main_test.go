// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/output"
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
		{"--fault=lazy", program.ExitUsage, `for "--fault" flag: fault "lazy": unknown kind "lazy": use reject, crashloop`},
		{"--join=5", program.ExitUsage, `for "--join" flag: must be NODES@AFTER, such as 50@1m`},
		{"--leave=0@1m", program.ExitUsage, `for "--leave" flag: must be NODES@AFTER`},
		{"--reset=2@soon", program.ExitUsage, `for "--reset" flag: must be NODES@AFTER`},
		{"--reboot-time=0s", program.ExitUsage, "--reboot-time must be longer than 0"},
		{"--nodes=-1", program.ExitUsage, "--nodes must not be negative"},
		{"--trial-duration=0s", program.ExitUsage, "--trial-duration must be longer than 0"},
		{"--lease-period=-1s", program.ExitUsage, "--lease-period must not be negative"},
		{"--crash-loop-threshold=11", program.ExitUsage, "must be 0 to 10"},
		{"--name-prefix=Big_", program.ExitUsage, `--name-prefix "Big_": a lowercase RFC 1123 subdomain`},
		{"--label=pool", program.ExitUsage, `for "--label" flag: pool must be formatted as key=value`},
		{"--label=a=b/c", program.ExitUsage, "--label a=b/c: a valid label"},
		{"--size=cpu=4", program.ExitUsage, "cpu and memory are required"},
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
	return cluster, assert.Value(cluster.Client(v1alpha1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme))(t)
}

func TestNodesJoinLeaveAndRebootAndAreCleanedUp(t *testing.T) {
	cluster, kube := aCluster(t)
	dir := filepath.Join(t.TempDir(), "state")
	cmd := runMain(t, "--kubeconfig="+cluster.AdminKubeconfig(), "--nodes=5", "--zones=2", "--label=pool=a", "--dir="+dir,
		"--fault=silent,node=hollow-4", "--join=2@1s", "--leave=1@2s", "--reboot=2@4s", "--reset=1@12s", "--reboot-time=3s")
	stdout := assert.Value(cmd.StdoutPipe())(t)
	var stderr output.Buffer // read while it runs
	cmd.Stderr = &stderr
	assert.NoError(t, cmd.Start())
	seen := bufio.NewScanner(stdout)
	for _, want := range []string{"5 nodes: 4 LocalDefault, 1 silent", "6 nodes: 5 LocalDefault, 1 silent",
		"6 nodes: 3 LocalDefault, 3 silent", "6 nodes: 5 LocalDefault, 1 silent", "6 nodes: 4 LocalDefault, 2 silent", "6 nodes: 5 LocalDefault, 1 silent"} {
		found := ""
		for found != want && seen.Scan() {
			_, found, _ = strings.Cut(strings.TrimSpace(seen.Text()), "  ")
		}

		assert.Must(t, found == want, "never: %q\n%s", want, stderr.String())
	}

	nodes, configs := &corev1.NodeList{}, &v1alpha1.NodeConfigList{}
	labels := client.MatchingLabels{"pool": "a", "evenkeel.dev/hollow": "true"}
	assert.NoError(t, errors.Join(kube.List(t.Context(), nodes, labels), kube.List(t.Context(), configs)))
	assert.Equal(t, len(nodes.Items), 6, "Nodes")
	assert.Equal(t, len(configs.Items), 6, "NodeConfigs: the one of the node that left stays, and the silent node has none")
	assert.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for seen.Scan() { // Wait closes the pipe
	}
	assert.OK(t, cmd.Wait(), "it has said", stderr.String())
	nothingIsLeft(t, kube)
	assert.OK(t, assert.Err(os.Stat(filepath.Join(dir, "hollow-1"))), "the state must be kept")
}

// nothingIsLeft waits for 10 s at most until no hollow node exists.
func nothingIsLeft(t *testing.T, kube client.Client, about ...any) {
	t.Helper()
	assert.OK(t, bed.Eventually(t.Context(), 10*time.Second, func(ctx context.Context) error {
		nodes, configs, leases := &corev1.NodeList{}, &v1alpha1.NodeConfigList{}, &coordinationv1.LeaseList{}
		err := errors.Join(kube.List(ctx, nodes), kube.List(ctx, configs), kube.List(ctx, leases, client.InNamespace("kube-node-lease")))
		if err != nil {
			return err
		}

		return assert.Unless(len(nodes.Items)+len(configs.Items)+len(leases.Items) == 0,
			"%d Nodes, %d NodeConfigs and %d Leases are left behind", len(nodes.Items), len(configs.Items), len(leases.Items))
	}), about...)
}

func TestCleanupAfterABrokenPipeOrAnOutageOfTheAPIServer(t *testing.T) {
	cluster, kube := aCluster(t)
	cmd := runMain(t, "--nodes=2", "--join=1@3s", "--kubeconfig="+cluster.AdminKubeconfig())
	stdout := bufio.NewScanner(assert.Value(cmd.StdoutPipe())(t))
	stderr := bufio.NewScanner(assert.Value(cmd.StderrPipe())(t))
	assert.NoError(t, cmd.Start())
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
	nothingIsLeft(t, kube, "after the API server was away")

	reader, writer, err := os.Pipe()
	assert.NoError(t, err)
	reader.Close()
	defer writer.Close()
	cmd = runMain(t, "--nodes=2", "--kubeconfig="+cluster.AdminKubeconfig())
	cmd.Stdout = writer
	err = cmd.Run()
	exit, is := errors.AsType[*exec.ExitError](err)
	assert.That(t, is && exit.ExitCode() == program.ExitError, "without a reader it ended with %v, want exit code %d", err, program.ExitError)
	nothingIsLeft(t, kube, "without a reader")
}
