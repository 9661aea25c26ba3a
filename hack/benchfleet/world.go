// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/auditlog"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// asController is the identity of config/controller, which has only the
// permissions that the controller needs.
const asController = "system:serviceaccount:evenkeel-system:evenkeel-controller"

// auditPolicy makes the API server log every write, and all requests of the
// controller.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Request # to see assignments, failures, and the progress of trials
  verbs: [patch]
  resources: [{group: evenkeel.dev, resources: [nodeconfigs, nodeconfigs/status]}]
- level: Metadata
  users: ["` + asController + `"]
- level: Metadata
  verbs: [create, update, patch, delete]
- level: None
`

// world is an API server and its clients.
type world struct {
	dir     string
	cluster *localcluster.Cluster
	admin   client.Client
	cached  cache.Cache   // of the administrator, for the view
	hand    client.Client // patches nodes with the controller's identity, so that the API server treats both alike
	kube    *kubernetes.Clientset
	audit   *auditlog.Log
	config  string         // the controller's kubeconfig
	servers map[string]int // process IDs of the API server and etcd
	large   bool           // more nodes than the shipped memory limit allows: the controller runs without it
	slow    bool           // more nodes than these processors serve in time: the controller's Lease is valid for longer
	logs    int
}

// quota is the size of etcd's database at which it refuses writes: a rollout to
// 20,000 nodes writes more than the default of 2 GiB between two compactions.
const quota = "--quota-backend-bytes=8589934592"

// withWorld calls do with a new world, and stops it.
func (b *bench) withWorld(ctx context.Context, do func(*world)) {
	w := &world{}
	err := must.Try(func() {
		w.up(ctx, b.fsync)
		do(w)
	})
	must.OK(errors.Join(err, w.down()))
}

// up starts an API server.
func (w *world) up(ctx context.Context, fsync bool) {
	ctrllog.SetLogger(logr.Discard())
	w.dir = must.Get(os.MkdirTemp("", "evenkeel-benchfleet-"))
	w.dir = must.Get(filepath.EvalSymlinks(w.dir))
	var flags []string
	w.audit, flags = must.Get2(auditlog.New(w.dir, auditPolicy))
	w.cluster = must.Get(localcluster.Start(ctx, localcluster.Options{
		Dir: filepath.Join(w.dir, "cluster"), APIServerFlags: flags,
		EtcdFlags: []string{quota, fmt.Sprintf("--unsafe-no-fsync=%t", !fsync)},
	}))
	must.OK(w.cluster.Apply(ctx, filepath.Join("config", "controller")))
	w.servers = w.cluster.ServerPIDs()
	scheme := runtime.NewScheme()
	must.OK(errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)))
	own := func(config *rest.Config) *rest.Config {
		config.UserAgent, config.QPS = "benchfleet", -1
		return config
	}
	w.admin = must.Get(client.New(own(w.cluster.AdminConfig()), client.Options{Scheme: scheme}))
	w.cached = must.Get(cache.New(own(w.cluster.AdminConfig()), cache.Options{
		Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields(), // thousands are kept
	}))
	w.kube = must.Get(kubernetes.NewForConfig(own(w.cluster.AdminConfig())))
	w.config = must.Get(w.cluster.ClientKubeconfig(asController, "system:serviceaccounts", "system:serviceaccounts:evenkeel-system"))
	config := must.Get(clientcmd.BuildConfigFromFlags("", w.config))
	w.hand = must.Get(client.New(own(config), client.Options{Scheme: scheme}))
}

func (w *world) down() error {
	var err error
	if w.cluster != nil {
		err = w.cluster.Stop()
	}

	return errors.Join(err, os.RemoveAll(w.dir))
}

// run starts one of evenkeel's programs.
func (w *world) run(name string, env []string, args ...string) *child {
	path := must.Get(bed.Program(name))
	w.logs++

	return start(filepath.Join(w.dir, fmt.Sprintf("%s-%d.log", name, w.logs)), env, append([]string{path}, args...)...)
}

// shippedEnv returns the environment variables of the controller's Deployment,
// which set up Go's garbage collector.
func shippedEnv(manifest []byte) []string {
	var d appsv1.Deployment
	must.About("the controller's Deployment", func() { must.OK(yaml.Unmarshal(manifest, &d)) })
	var env []string
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				env = append(env, e.Name+"="+e.Value)
			}
		}
	}

	limited := slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "GOMEMLIMIT=") })
	must.That(limited, "the controller's Deployment has no GOMEMLIMIT")

	return env
}

// controllerArgs are the flags of every controller that is measured. A small
// API server cannot answer all agents within a minute.
var controllerArgs = []string{"--metrics-bind-address=0", "--health-probe-bind-address=0", "--agent-timeout=30m"}

// withController starts a controller with the environment of its Deployment,
// calls do when it has read everything, with the duration, and stops it.
func (w *world) withController(ctx context.Context, args []string, do func(c *child, started time.Duration)) {
	manifest := must.Get(os.ReadFile(filepath.Join("config", "controller", "deployment.yaml")))
	env := shippedEnv(manifest)
	if w.large {
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "GOMEMLIMIT=") })
	}
	if w.slow {
		args = append([]string{"--leader-elect-lease-duration=2m"}, args...)
	}

	begin := time.Now()
	c := w.run("evenkeel-controller", env, slices.Concat([]string{"--kubeconfig=" + w.config}, controllerArgs, args)...)
	err := must.Try(func() {
		c.says(ctx, "all watches are synced", 5*time.Minute)
		do(c, time.Since(begin))
	})
	must.OK(errors.Join(err, c.stop()))
}

// withFleet calls run with a new cluster that has the hollow nodes, and stops
// both.
func (b *bench) withFleet(ctx context.Context, run func(context.Context, *fleet)) {
	b.withWorld(ctx, func(w *world) {
		w.slow = b.nodes > memoryNodes
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		begin := time.Now()
		f := &fleet{world: w, nodes: b.nodes}
		f.hollow = w.run("evenkeel-hollow", nil, "--kubeconfig="+w.cluster.AdminKubeconfig(), fmt.Sprintf("--nodes=%d", f.nodes),
			"--zones=3", "--cleanup=false", "--trial-duration=2s")
		err := must.Try(func() {
			f.hollow.says(ctx, "nodes have joined", 10*time.Minute+time.Duration(f.nodes)*nodeTimeout)
			note("nodes joined in", "%s", seconds(time.Since(begin)))
			f.view = w.view(ctx)
			eventually(ctx, time.Duration(f.nodes)*nodeTimeout+10*time.Minute, 200*time.Millisecond, nil, func() {
				n := len(f.known())
				must.That(n == f.nodes, "%d of %s are so far", n, printable.Count(f.nodes, "node"))
			})
			run(ctx, f)
		})
		must.OK(errors.Join(err, f.hollow.stop()))
	})
}

// seen is the known state of a NodeConfig.
type seen struct {
	uid        types.UID
	generation int64
	spec       v1alpha1.NodeConfigSpec
	settled    bool      // the status is of the current spec, and no trial is running
	proven     types.UID // its last-known-good, once it is active and the node is settled
}

// has reports whether a node has proven the configuration that a rollout
// assigned to it.
func (s seen) has(rollout string) bool {
	source := s.spec.ConfigSource
	return source != nil && source.RolloutRef != nil && source.RolloutRef.Name == rollout && s.proven == source.ConfigMapRef.UID
}

// view has the state of all NodeConfigs, from one watch.
type view struct {
	mu    sync.Mutex
	nodes map[string]seen
}

func (w *world) view(ctx context.Context) *view {
	v := &view{nodes: map[string]seen{}}
	set := func(o any) {
		nc := o.(*v1alpha1.NodeConfig)
		s := seen{uid: nc.UID, generation: nc.Generation, spec: nc.Spec}
		st := &nc.Status
		s.settled = st.ObservedGeneration == nc.Generation && st.Trial == nil
		if s.settled && st.LastKnownGood != nil && st.Active != nil && st.Active.UID == st.LastKnownGood.UID {
			s.proven = st.Active.UID
		}

		v.mu.Lock()
		defer v.mu.Unlock()
		v.nodes[nc.Name] = s
	}
	configs := must.Get(w.cached.GetInformer(ctx, &v1alpha1.NodeConfig{}, cache.BlockUntilSynced(false)))
	must.Get(configs.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: set, UpdateFunc: func(_, o any) { set(o) }}))
	go func() { _ = w.cached.Start(ctx) }() // fails only if it runs already

	return v
}

// known returns the state of all nodes.
func (v *view) known() map[string]seen {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.nodes)
}

// count returns how many nodes meet a condition.
func (v *view) count(is func(seen) bool) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, s := range v.nodes {
		if is(s) {
			n++
		}
	}

	return n
}

// nodeTimeout is the allowed time per node for actions of all nodes.
const nodeTimeout = 150 * time.Millisecond

// quiet waits until nothing except Leases was written for some seconds.
func (w *world) quiet(ctx context.Context) {
	const still = 3 * time.Second
	eventually(ctx, 15*time.Minute, 500*time.Millisecond, nil, func() {
		must.OK(w.audit.Read())
		for _, r := range slices.Backward(w.audit.Requests) {
			if r.Write() && r.Resource != "leases" {
				ago := time.Since(r.Answered)
				must.That(ago >= still, "%s wrote %s %s ago", r.Program, r.Resource, ago)

				return
			}
		}
	})
}

// cpuTime returns the CPU time that processes have used.
type cpuTime map[string]time.Duration

func (w *world) spent(children ...*child) cpuTime {
	out := cpuTime{}
	pids := map[string]int{}
	maps.Copy(pids, w.servers)
	for _, c := range children {
		pids[c.Name] = c.Pid()
	}

	for name, pid := range pids {
		out[name] = must.Get(figures.CPUTime(pid))
	}

	return out
}
