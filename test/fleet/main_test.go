// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet_test tests rollouts end to end: the real evenkeel-controller
// and real agents with simulated kubelets, on a real API server. Each scenario
// has its own nodes and rollout; most share one controller. Invariants are
// checked for every state that a watch has seen, not only for the last one.
package fleet_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const (
	root   = "../.."
	binary = root + "/bin/evenkeel-controller"
	often  = 50 * time.Millisecond
	within = 5 * time.Minute // on a busy machine

	// The controller's times, for nodes that answer within a second unless the
	// machine is busy.
	agentTimeout  = 5 * time.Second
	notReadyGrace = 5 * time.Second

	// atOnce is how many scenarios run at the same time: they wait most of the
	// time.
	atOnce = "6"
)

var (
	cluster *localcluster.Cluster
	kube    client.WithWatch
	watched *recorder
	shared  *process // the controller of all scenarios that do not say otherwise
)

func TestMain(m *testing.M) {
	flag.Parse()
	if !given("test.parallel") {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}

	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}

	os.Exit(code)
}

func given(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	klog.SetLogger(logr.Discard()) // watches that end with their test
	starting, started := context.WithTimeout(ctx, 2*time.Minute)
	defer started()
	if cluster, err = localcluster.Borrow(starting, localcluster.Options{}); err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if err := cluster.Apply(starting, filepath.Join(root, "config/controller")); err != nil {
		return 0, err
	}

	scheme := kruntime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), admissionv1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme), corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme)); err != nil {
		return 0, err
	}

	config := cluster.AdminConfig()
	config.QPS = -1
	if kube, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return 0, err
	}
	if watched, err = record(ctx); err != nil {
		return 0, err
	}
	if shared, err = startController("--leader-elect=false"); err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, shared.stop()) }()

	return m.Run(), nil
}

// process is a controller, as it is deployed but for its times. It has no right
// but its own.
type process struct {
	*localcluster.Process
	metrics string // URL
	probes  string // address
}

// startController starts one with these flags besides its usual ones, and
// returns when it is ready.
func startController(flags ...string) (*process, error) {
	p, err := spawnController(flags...)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := p.Wait(ctx, func(ctx context.Context) error { return localcluster.Probe(ctx, "http://"+p.probes+"/readyz") }); err != nil {
		p.Kill()
		return nil, err
	}

	return p, nil
}

// spawnController starts one, which dies with the test.
func spawnController(flags ...string) (_ *process, err error) {
	defer must.Catch(&err)

	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("%w: run make build", err)
	}

	kubeconfig := must.Get(cluster.ClientKubeconfig("system:serviceaccount:evenkeel-system:evenkeel-controller",
		"system:serviceaccounts", "system:serviceaccounts:evenkeel-system", "system:authenticated"))
	metrics := must.Get(localcluster.FreeAddress())
	probes := must.Get(localcluster.FreeAddress())
	log := filepath.Join(cluster.Dir(), fmt.Sprintf("controller-%s.log", strings.ReplaceAll(probes, ":", "-")))
	p, err := localcluster.StartProcess("the controller", log, exec.Command(binary, append([]string{
		"--kubeconfig=" + kubeconfig, "--metrics-bind-address=" + metrics, "--health-probe-bind-address=" + probes,
		"--agent-timeout=" + agentTimeout.String(), "--not-ready-grace=" + notReadyGrace.String(), "-v=1",
	}, flags...)...))

	return &process{p, "https://" + metrics + "/metrics", probes}, err
}

// stop stops it as its Deployment does, and waits.
func (p *process) stop() error {
	if err := p.Stop(20 * time.Second); err != nil {
		return err
	}
	if code := p.Cmd.ProcessState.ExitCode(); code > 0 {
		return fmt.Errorf("the controller's exit code is %d\n%s", code, p.said(""))
	}

	return nil
}

// said returns the last log lines that contain about.
func (p *process) said(about string) string {
	const most = 60
	var out []string
	for line := range strings.Lines(p.Said()) {
		if strings.Contains(line, about) {
			out = append(out, line)
		}
	}

	return strings.Join(out[max(0, len(out)-most):], "")
}
