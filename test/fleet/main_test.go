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
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const (
	root   = "../.."
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
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}

	flag.Parse() // the command line has precedence
	os.Exit(localcluster.RunTests(localcluster.Options{}, func(ctx context.Context, c *localcluster.Cluster) (int, error) {
		cluster = c
		return run(ctx, m)
	}))
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	klog.SetLogger(logr.Discard()) // watches that end with their test
	if err := cluster.Apply(ctx, filepath.Join(root, "config/controller")); err != nil {
		return 0, err
	}
	if kube, err = cluster.Client(kubescheme.AddToScheme, v1alpha1.AddToScheme); err != nil {
		return 0, err
	}
	if watched, err = record(context.Background()); err != nil {
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

	binary := must.Get(bed.Program("evenkeel-controller"))
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
