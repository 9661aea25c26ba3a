// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller"
	"github.com/evenkeel/evenkeel/internal/controller/gate"
	"github.com/evenkeel/evenkeel/internal/controller/notify"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/hollow"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/promserver"
)

// What the tests look at: a controller and the agents of three nodes, of which
// one was given a configuration that its kubelet crashes with.
var (
	exporter *httptest.Server // /controller/metrics, /NODE/metrics
	nodes    = []string{"watched-0", "watched-1", "watched-2"}

	kubeconfig string
)

const bad = `
apiVersion: evenkeel.dev/v1alpha1
kind: NodeConfigRollout
metadata:
  name: workers
spec:
  nodeSelector: {matchLabels: {pool: workers}}
  template:
    kubeletDropIn: {apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, maxPods: 7}
  strategy:
    steps: [{nodes: 1}, {nodes: 100%}]
    preflight: Report
    gates: [{name: never-evaluated, prometheus: {server: main, query: up, passes: "> 0"}}]
`

func TestMain(m *testing.M) {
	os.Exit(localcluster.RunTests(localcluster.Options{}, func(ctx context.Context, c *localcluster.Cluster) (int, error) { return run(ctx, m, c) }))
}

func run(ctx context.Context, m *testing.M, cluster *localcluster.Cluster) (code int, err error) {
	defer must.Catch(&err)

	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	kubeconfig = cluster.AdminKubeconfig()

	agents := map[string]*agent.Metrics{}
	mux := http.NewServeMux()
	mux.Handle("/controller/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	for _, name := range nodes {
		agents[name] = agent.NewMetrics(name, "v0.1.0", "0123abc")
		mux.Handle("/"+name+"/metrics", agents[name].Handler())
	}

	exporter = httptest.NewServer(mux)
	defer exporter.Close()

	c := must.Get(controller.New(cluster.AdminConfig(), controller.Options{
		Notify:  []notify.Receiver{{Name: "down", URL: "http://127.0.0.1:1"}},
		Version: "v0.1.0", LeaderElection: true, MetricsAddress: "0", ProbeAddress: "0",
		PrometheusServers: []gate.Server{{Name: "main", URL: "http://localhost:9090"}}, // for its metrics
		Log:               slog.New(slog.DiscardHandler), Registry: metrics.Registry,
	}))
	leading, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(leading) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()

	fleet := must.Get(hollow.Start(ctx, hollow.Options{
		Config: cluster.AdminConfig(), Nodes: len(nodes), Prefix: "watched-", Labels: map[string]string{"pool": "workers"},
		Faults:  []hollow.Fault{must.Get(hollow.ParseFault("crashloop,field=maxPods:7"))},
		Version: "v0.1.0", Metrics: func(node string) *agent.Metrics { return agents[node] },
		Limits: trial.Limits{TrialDuration: time.Second, CrashLoopThreshold: 1},
	}))
	defer func() { err = errors.Join(err, fleet.Stop()) }()

	scheme := runtime.NewScheme()
	must.OK(v1alpha1.AddToScheme(scheme))
	admin := must.Get(client.New(cluster.AdminConfig(), client.Options{Scheme: scheme}))
	r := &v1alpha1.NodeConfigRollout{}
	must.OK(yaml.UnmarshalStrict([]byte(bad), r))
	must.OK(admin.Create(ctx, r))
	must.OK(bed.Eventually(ctx, time.Minute, func(context.Context) error {
		text, err := scrape("controller")
		if err == nil && !strings.Contains(text, `evenkeel_rollout_halted{rollout="workers"} 1`) {
			err = errors.New("the rollout is not halted")
		}

		return err
	}))

	return m.Run(), nil
}

// scrape returns what the controller, or the agent of a node, says.
func scrape(of string) (_ string, err error) {
	defer must.Catch(&err)

	response := must.Get(http.Get(exporter.URL + "/" + of + "/metrics"))
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, text)
	}

	return string(text), nil
}

func read(t *testing.T, file string) string {
	t.Helper()
	text := assert.Value(os.ReadFile(filepath.Join(root, file)))(t)
	return string(text)
}

var missing sync.Once

// prometheus returns the path of prometheus or promtool. Where they cannot be
// had, the test is skipped.
func prometheus(t *testing.T, name string) string {
	t.Helper()
	path, err := promserver.Path(root, name)
	if err != nil {
		missing.Do(func() { fmt.Println("SKIPPED, for lack of Prometheus (make prometheus): what tests alerts") })
		t.Skip(err)
	}

	return path
}

// promtool runs promtool, which must agree.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), prometheus(t, "promtool"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	assert.OK(t, err, "promtool", args, string(out))
}
