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
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

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
	// Tools is the directory of the upstream binaries; empty means bin/tools of
	// the module that holds the working directory.
	Tools string
	// Kubelet is the kubelet of the nodes, of any version that the API server
	// supports; empty means that of Tools.
	Kubelet string
	// APIServer is the API server, of 1.33 or later; empty means that of Tools.
	APIServer string
	// Manifests is a directory of YAML manifests to apply after start, or
	// NoManifests; empty means config/api of the module, if it exists.
	Manifests string
	// Private is for tests that overload the API server, or depend on how it
	// was started: Borrow then always starts a control plane.
	Private bool
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
	// Log gets a line for each step; nil discards them.
	Log io.Writer
}

// NoManifests is the value of Options.Manifests for a cluster in which nothing
// is applied.
const NoManifests = "none"

// Cluster is a running etcd and kube-apiserver, and the nodes added to it. Its
// methods are safe for concurrent use.
type Cluster struct {
	dir       string
	temporary bool
	tools     string
	kubelet   string
	server    string // the program of the API server
	module    string
	log       *slog.Logger
	lock      *os.File
	ca        *authority
	manifests string
	flags     []string // additional flags of the API server
	etcdFlags []string
	ports     ports
	guard     *guard
	admin     *rest.Config
	lease     *lease // of a borrowed control plane, which has no process here

	mu        sync.Mutex
	etcd      *Process
	apiserver *Process
	apiPort   int
	etcdPort  int
	peerPort  int
	nodes     map[string]*Node
	stopped   bool

	controllers map[string]*Process // by name
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
func prepare(o Options) (*Cluster, error) {
	module, err := ModuleRoot()
	if err != nil {
		return nil, err
	}
	if o.Tools == "" {
		o.Tools = filepath.Join(module, "bin", "tools")
	}
	if o.Kubelet == "" {
		o.Kubelet = filepath.Join(o.Tools, "kubelet")
	}
	if o.APIServer == "" {
		o.APIServer = filepath.Join(o.Tools, "kube-apiserver")
	}

	switch o.Manifests {
	case "":
		o.Manifests = defaultManifests(module)
	case NoManifests:
		o.Manifests = ""
	}

	if o.Log == nil {
		o.Log = io.Discard
	}

	c := &Cluster{
		tools:     o.Tools,
		kubelet:   o.Kubelet,
		server:    o.APIServer,
		module:    module,
		manifests: o.Manifests,
		flags:     o.APIServerFlags,
		etcdFlags: o.EtcdFlags,
		log:       slog.New(slog.NewTextHandler(o.Log, nil)),
		nodes:     map[string]*Node{},
	}
	for _, program := range []string{c.tool("etcd"), c.server} {
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("upstream binary missing, run `make tools`: %w", err)
		}
	}

	return c, c.lockDir(o.Dir)
}

// defaultManifests returns config/api of the module, or "" if it does not
// exist.
func defaultManifests(module string) string {
	dir := filepath.Join(module, "config", "api")
	if !isDir(dir) {
		return ""
	}

	return dir
}

func (c *Cluster) start(ctx context.Context, later bool) (err error) {
	defer must.Catch(&err)

	begin := time.Now()
	c.guard = must.Get(c.startGuard(ctx))
	c.ca = must.Get(newAuthority(filepath.Join(c.dir, "pki")))
	// Ports cannot be reserved for another process. Only programs outside of
	// this package can take one of these ports, so one retry with other ports
	// is enough.
	err = c.startControlPlane(ctx, later)
	if errors.Is(err, errPortTaken) {
		c.log.Info("a port was taken, trying others")
		c.stopControlPlane()
		err = c.startControlPlane(ctx, later)
	}

	if err != nil || later {
		return err
	}

	must.OK(c.SetUp(ctx))
	c.log.Info("API is ready", "url", c.URL(), "after", time.Since(begin).Round(time.Millisecond))

	return nil
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
func (c *Cluster) lockDir(dir string) error {
	var err error
	if dir == "" {
		c.temporary = true
		dir, err = os.MkdirTemp("", "evk-")
	} else if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}

	if err != nil {
		return fmt.Errorf("make the cluster's directory: %w", err)
	}
	// The kernel lists mounts by paths without symbolic links.
	if c.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return fmt.Errorf("resolve the cluster's directory: %w", err)
	}

	for _, own := range []string{"pki", "etcd", "log", "kubeconfig", "nodes"} {
		if err := os.Mkdir(filepath.Join(c.dir, own), 0o755); err != nil {
			return fmt.Errorf("make the cluster's directory: %w", err)
		}
	}

	if c.lock, err = os.OpenFile(filepath.Join(c.dir, "localcluster.lock"), os.O_RDWR|os.O_CREATE, 0o600); err == nil {
		err = unix.Flock(int(c.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return fmt.Errorf("lock the cluster's directory: %w", err)
	}

	return nil
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
	nodes := make([]*Node, 0, len(c.nodes))
	for _, n := range c.nodes {
		nodes = append(nodes, n)
	}

	c.mu.Unlock()

	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Stop())
	}

	c.StopControllers()
	c.stopControlPlane()
	c.ports.release()
	if c.guard != nil {
		errs = append(errs, c.guard.dismiss(errors.Join(errs...) == nil))
	}

	if c.temporary {
		if err := os.RemoveAll(c.dir); err != nil {
			errs = append(errs, fmt.Errorf("remove the cluster's directory: %w", err))
		}
	}

	errs = append(errs, c.lock.Close(), c.lease.close())
	c.log.Info("stopped", "dir", c.dir)

	return errors.Join(errs...)
}

// Dir returns the cluster's directory, absolute and without symbolic links.
func (c *Cluster) Dir() string { return c.dir }

// URL returns the address of the API server, which StopAPIServer and
// StartAPIServer do not change.
func (c *Cluster) URL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.url()
}

func (c *Cluster) url() string { return fmt.Sprintf("https://127.0.0.1:%d", c.apiPort) }

// AdminConfig returns a new client configuration of a cluster administrator,
// with high client-side rate limits.
func (c *Cluster) AdminConfig() *rest.Config { return rest.CopyConfig(c.admin) }

func (c *Cluster) tool(name string) string { return filepath.Join(c.tools, name) }

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

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
