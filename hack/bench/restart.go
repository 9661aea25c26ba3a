// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/auditlog"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// statusGate is a deprecated gate of 1.35 and later. With it, a starting
// kubelet sets containers not ready, as up to 1.34.
const statusGate = "ChangeContainerStatusOnKubeletRestart"

// firstMinute is how long requests are counted.
const firstMinute = time.Minute

// auditPolicy makes the API server log each request of the node's identity when
// it is received, so that a watch counts when it starts.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete]
rules:
- level: Metadata
  userGroups: ["system:nodes"]
- level: None
`

// variant is a kubelet, with or without statusGate.
type variant struct {
	path, version string
	gate          bool
}

func (v variant) String() string {
	if v.gate {
		return v.version + ", gate on"
	}

	return v.version
}

// variants returns the kubelets that a list of versions or "all" names, the
// oldest first.
func variants(ctx context.Context, versions string) []variant {
	tools := filepath.Join(must.Get(localcluster.ModuleRoot()), "bin", "tools")
	paths := must.Get(filepath.Glob(filepath.Join(tools, "kubelets", "*", "kubelet")))
	var out []variant
	for _, path := range append(paths, filepath.Join(tools, "kubelet")) {
		raw, err := exec.CommandContext(ctx, path, "--version").Output()
		must.That(err == nil, "run `make tools`: %s: %w", path, err)
		v := variant{path: path, version: strings.TrimSpace(strings.TrimPrefix(string(raw), "Kubernetes "))}
		if versions != "all" && !slices.Contains(strings.Split(versions, ","), v.version) {
			continue
		}

		var minor int
		_, err = fmt.Sscanf(v.version, "v1.%d.", &minor)
		must.That(err == nil, "%s has version %q: %w", path, v.version, err)
		out = append(out, v)
		if minor >= 35 {
			v.gate = true
			out = append(out, v)
		}
	}

	must.That(len(out) > 0, "there is no kubelet %s in %s", versions, tools)
	slices.SortStableFunc(out, func(a, b variant) int { return strings.Compare(a.version, b.version) })

	return out
}

// restarts measures what a restart of each kubelet costs its pods and the API
// server. The floor of a change by evenkeel is a plain restart: the same
// kubelet without an agent, stopped and started again.
func restarts(ctx context.Context, versions string, pods, rounds int) {
	all := variants(ctx, versions)
	dir := must.Get(os.MkdirTemp("", "evk-serve-"))
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "serve")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./hack/bench/serve")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	must.That(err == nil, "build the program of the pods: %w\n%s", err, out)
	fmt.Printf("%d pods with probes and a static pod, %d processors\n\n", pods, runtime.NumCPU())
	var found []measurement
	defer func() { printRestarts(found) }()
	for _, v := range all {
		began := time.Now()
		r := restartRun{variant: v, program: program, count: pods, rounds: rounds}
		ms, err := r.measure(ctx)
		found = append(found, ms...)
		must.That(err == nil, "%s: %w", v, err)
		fmt.Fprintf(os.Stderr, "%s: measured in %.0f s\n", v, time.Since(began).Seconds())
	}
}

// printRestarts prints what each restart costs, as a table in Markdown. The
// floor of a change is the kubelet's plain restart.
func printRestarts(all []measurement) {
	fmt.Println("| kubelet | restart | pods that lost Ready | for 1 s or more | longest | requests of the kubelet in the first minute |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, m := range all {
		fmt.Printf("| %s | %s | %d of %d | %d | %.1f s | %d |\n", m.variant, m.what, m.cost.lost, m.cost.pods, m.cost.long, m.cost.longest.Seconds(), m.requests)
	}
}

// What a measurement is of.
const (
	plainRestart = "plain restart"
	goodChange   = "good change"
)

// measurement is a restart and the minute after it.
type measurement struct {
	variant  variant
	what     string
	cost     cost
	requests int // of the kubelet, in firstMinute
}

// restartRun measures one variant on a node of its own.
type restartRun struct {
	variant variant
	program string // of the pods
	count   int    // of the pods
	rounds  int    // number of restarts of each kind

	bed   *bed.Bed
	audit *auditlog.Log
	pods  *probedPods
}

func (r *restartRun) measure(ctx context.Context) (found []measurement, err error) {
	defer must.Catch(&err)

	dir := must.Get(os.MkdirTemp("", "evk-audit-"))
	defer os.RemoveAll(dir)
	var flags []string
	r.audit, flags = must.Get2(auditlog.New(dir, auditPolicy))
	cluster := must.Get(localcluster.Start(ctx, localcluster.Options{Kubelet: r.variant.path, APIServerFlags: flags}))
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	r.bed = must.Get(bed.On(ctx, cluster, "restart"))
	must.OK(r.bed.Node.ImportImage(ctx, serveImage, "/serve", r.program))
	r.configure()
	kubelet := startKubelet(r.bed, r.bed.Node.KubeletArgs()...) // after an error, the cluster's Stop ends it
	r.pods = createPods(ctx, r.bed, r.count)
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.pods.watch(watching)
	}()
	defer func() { stop(); <-done }()

	for range r.rounds {
		found = append(found, r.period(ctx, plainRestart, func(p *pulse) {
			begin := time.Now()
			must.OK(kubelet.Stop(time.Minute))
			kubelet = startKubelet(r.bed, r.bed.Node.KubeletArgs()...)
			p.next(ctx, begin)
		}))
	}

	must.OK(kubelet.Stop(time.Minute))
	a := must.Get(r.bed.Agent("--config-trial-duration=1h"))
	start(ctx, r.bed, a)
	defer func() { err = errors.Join(err, a.Stop(time.Minute)) }()
	for i := range r.rounds {
		data := must.Get(r.bed.Config(map[string]any{"containerLogMaxFiles": 7 + i}))
		found = append(found, r.period(ctx, goodChange, func(p *pulse) {
			change(ctx, r.bed, p, fmt.Sprintf("good-%d", i), map[string]string{"kubelet": data})
		}))
	}

	return found, nil
}

// configure writes the node's own configuration: intervals of the status as on
// a real node, and the gate.
func (r *restartRun) configure() {
	changes := map[string]any{"nodeStatusUpdateFrequency": "10s"}
	if r.variant.gate {
		changes["featureGates"] = map[string]bool{statusGate: true}
	}

	must.OK(os.WriteFile(r.bed.Node.KubeletConfig(), []byte(must.Get(r.bed.Config(changes))), 0o644))
}

// settled is how long all pods are Ready before a restart. A kubelet of 1.35 or
// later sets containers not ready that started less than 10 s before it.
const settled = 15 * time.Second

// period measures from a restart until a minute has passed and all pods are
// Ready again.
func (r *restartRun) period(ctx context.Context, what string, restart func(*pulse)) measurement {
	r.pods.becomeReady(ctx)
	must.OK(bed.Pause(ctx, settled))
	m := measurement{variant: r.variant, what: what}
	p := feelPulse(ctx, r.bed.Node.HealthzPort())
	must.OK(bed.Pause(ctx, time.Second)) // until the kubelet has answered
	begin := time.Now()
	err := must.Try(func() { restart(p) })
	p.end()
	must.That(err == nil, "%s: %w", what, err)
	must.OK(bed.Pause(ctx, time.Until(begin.Add(firstMinute))))
	must.About("after "+what, func() { r.pods.becomeReady(ctx) })
	m.cost = r.pods.cost(begin, time.Now())
	must.OK(r.audit.Read())
	for _, n := range r.audit.Count(begin, begin.Add(firstMinute), func(q *auditlog.Request) bool { return q.Program == "kubelet" }) {
		m.requests += n
	}

	return m
}
