// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package localcluster runs Kubernetes clusters on loopback for tests and the
// demo: a real etcd and kube-apiserver, and nodes with a real containerd and
// CNI.
//
// The package must not know what runs on its nodes: it prepares everything that
// a stock kubelet needs, but starts no kubelet. StartControllers starts the
// scheduler and the controller manager; without them, tests bind pods to a node
// by spec.nodeName, with automountServiceAccountToken: false.
//
// Everything that a cluster starts dies with the process that called Start:
// children have a parent-death signal, and a guard process removes what leaves
// its parent (containerd's shims, pods, mounts).
package localcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// Options configure a cluster. The zero value is a cluster in a temporary
// directory.
type Options struct {
	// Dir is the working directory, which is missing or empty. "" means a
	// temporary directory, which Stop removes. The path must be short if the
	// cluster has nodes, because it holds sockets.
	Dir string
	// Kubelet is the kubelet of the nodes, of any version that the API server
	// supports; empty means that of bin/tools.
	Kubelet string
	// APIServer is the API server, of 1.33 or later; empty means that of
	// bin/tools.
	APIServer string
	// Manifests is a directory of YAML manifests to apply after start, or
	// NoManifests; empty means config/api.
	Manifests string
	// APIServerLater leaves the API server and the manifests to StartAPIServer
	// and SetUp. Start then starts only etcd, but chooses all files and ports,
	// so that nodes can start before the API server.
	APIServerLater bool
	// APIServerFlags are appended to the API server's command line and override
	// its flags: an audit log, limits for a large fleet.
	APIServerFlags []string
	// EtcdFlags are appended to etcd's command line and override its flags: a
	// larger quota for a large fleet, or --unsafe-no-fsync=false to measure
	// with fsync.
	EtcdFlags []string
}

// NoManifests is the value of Options.Manifests for a cluster in which nothing
// is applied.
const NoManifests = "none"

// Cluster is a running etcd and kube-apiserver, and the nodes added to it. Its
// methods are safe for concurrent use.
type Cluster struct {
	dir       string
	temporary bool
	kubelet   string
	server    string // the program of the API server
	module    string
	lock      *os.File
	ca        *authority
	manifests string
	flags     []string // additional flags of the API server
	etcdFlags []string
	ports     ports
	guard     *guard
	admin     *rest.Config
	lease     *lease // of a borrowed control plane, which has no process here
	etcdPort  int
	apiPort   int

	etcd, apiserver, manager, scheduler service

	mu      sync.Mutex
	nodes   map[string]*Node
	stopped bool
}

// Start starts etcd and kube-apiserver, waits until the API is ready, and
// applies the manifests. If it fails, it stops what it started, and the error
// has the end of the failed program's log.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c, err := prepare(o)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx, o.APIServerLater); err != nil {
		return nil, errors.Join(err, c.Stop())
	}

	return c, nil
}

// prepare makes a cluster's directory and checks its programs, but starts
// nothing.
func prepare(o Options) (_ *Cluster, err error) {
	defer must.Catch(&err)

	module := must.Get(ModuleRoot())
	c := &Cluster{module: module, flags: o.APIServerFlags, etcdFlags: o.EtcdFlags, nodes: map[string]*Node{}}
	c.kubelet = cmp.Or(o.Kubelet, c.tool("kubelet"))
	c.server = cmp.Or(o.APIServer, c.tool("kube-apiserver"))
	if o.Manifests != NoManifests {
		c.manifests = cmp.Or(o.Manifests, defaultManifests(module))
	}

	for _, program := range []string{c.tool("etcd"), c.server} {
		_, err := os.Stat(program)
		must.That(err == nil, "upstream binary missing, run `make tools`: %w", err)
	}

	must.About("make and lock the cluster's directory", func() { must.OK(c.lockDir(o.Dir)) })

	return c, nil
}

func defaultManifests(module string) string { return filepath.Join(module, "config", "api") }

func (c *Cluster) start(ctx context.Context, later bool) (err error) {
	defer must.Catch(&err)

	c.guard = must.Get(c.startGuard(ctx))
	c.ca = must.Get(newAuthority(filepath.Join(c.dir, "pki")))
	c.etcdPort = must.Get(c.ports.take())
	c.apiPort = must.Get(c.ports.take())
	c.admin = must.Get(c.makeAdmin())
	must.OK(c.startEtcd(ctx))
	if later {
		return nil
	}

	must.OK(c.StartAPIServer(ctx))

	return c.SetUp(ctx)
}

// SetUp completes a cluster whose API server was not started by Start: it
// creates the service account for pods and applies the manifests. It may be
// called again.
func (c *Cluster) SetUp(ctx context.Context) error {
	if err := c.ensureServiceAccount(ctx, "default"); err != nil {
		return err
	}
	if c.manifests == "" {
		return nil
	}

	return c.Apply(ctx, c.manifests)
}

// lockDir makes the directory and locks it. The guard shares the lock, so the
// directory stays locked until the guard has cleaned up.
func (c *Cluster) lockDir(dir string) (err error) {
	defer must.Catch(&err)

	if dir == "" {
		c.temporary = true
		dir = must.Get(os.MkdirTemp("", "evk-"))
	}

	dir = must.Get(filepath.Abs(dir))
	must.OK(os.MkdirAll(dir, 0o755))
	c.dir = must.Get(filepath.EvalSymlinks(dir)) // the kernel lists mounts by such paths
	for _, own := range []string{"pki", "etcd", "log", "kubeconfig", "nodes"} {
		must.OK(os.Mkdir(filepath.Join(c.dir, own), 0o755))
	}

	c.lock = must.Get(os.OpenFile(filepath.Join(c.dir, "localcluster.lock"), os.O_RDWR|os.O_CREATE, 0o600))

	return unix.Flock(int(c.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// Stop stops the nodes, the controllers, the API server and etcd, and removes a
// temporary directory. Further calls do nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return nil
	}

	c.stopped = true
	nodes := slices.Collect(maps.Values(c.nodes))
	c.mu.Unlock()

	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Stop())
	}

	// A borrowed API server goes on, for the next borrower.
	for _, s := range []*service{&c.scheduler, &c.manager, &c.apiserver, &c.etcd} {
		s.end()
	}

	c.ports.release()
	if c.guard != nil {
		errs = append(errs, c.guard.dismiss(errors.Join(errs...) == nil))
	}

	if c.temporary {
		if err := os.RemoveAll(c.dir); err != nil {
			errs = append(errs, fmt.Errorf("remove the cluster's directory: %w", err))
		}
	}

	return errors.Join(append(errs, c.lock.Close(), c.lease.close())...)
}

// Dir returns the cluster's directory, absolute and without symbolic links.
func (c *Cluster) Dir() string { return c.dir }

// URL returns the address of the API server, which StopAPIServer and
// StartAPIServer do not change.
func (c *Cluster) URL() string { return fmt.Sprintf("https://127.0.0.1:%d", c.apiPort) }

// AdminConfig returns a new client configuration of a cluster administrator,
// with high client-side rate limits.
func (c *Cluster) AdminConfig() *rest.Config { return rest.CopyConfig(c.admin) }

func (c *Cluster) tool(name string) string { return filepath.Join(c.module, "bin", "tools", name) }

func (c *Cluster) logFile(name string) string { return filepath.Join(c.dir, "log", name+".log") }

// ModuleRoot returns the directory of the go.mod at or above the working
// directory.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}

	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no go.mod at or above %s: run it inside the module", dir)
		}
	}
}
