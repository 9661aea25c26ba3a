// Package localcluster runs a real etcd and kube-apiserver, and nodes made of a real containerd and CNI, on loopback.
// It is for the end-to-end tests and the demo: what they see is what an unmodified Kubernetes does.
//
// It must not know what runs on its nodes: it prepares everything a stock kubelet needs, and starts none. Scheduler and
// controller manager are for who asks for them (StartControllers); without, tests bind pods to a node by spec.nodeName,
// with automountServiceAccountToken: false.
//
// Everything that it starts dies with the process that called Start, however that ends: children carry a parent-death
// signal, and a guard process cleans up behind what leaves its parent (containerd's shims, pods, mounts).
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
)

// Options says where a cluster lives. The zero value is a cluster in a temporary directory.
type Options struct {
	// Dir is the working directory: absent, empty, or that of an earlier cluster, which is then made anew. Empty
	// means a short one under os.TempDir, removed by Stop. Sockets live in it, so that a long one has no nodes.
	Dir string
	// Tools is the directory of the upstream binaries; empty means bin/tools of the module that holds the working
	// directory.
	Tools string
	// Kubelet is the kubelet of the nodes, of any version that the API server takes; empty means that of Tools.
	Kubelet string
	// APIServer is the API server, of 1.33 or later; empty means that of Tools.
	APIServer string
	// Manifests is a directory of YAML manifests to apply after start; empty means config/api of the module, if it
	// exists.
	Manifests string
	// APIServerLater leaves the API server and the manifests to StartAPIServer and SetUp: only etcd is started, and
	// files and ports are as they will be, so that nodes can be made that find nobody there yet.
	APIServerLater bool
	// APIServerFlags are added to the API server's command line, and win over what is there: an audit log, limits for a
	// large fleet.
	APIServerFlags []string
	// Log gets a line for everything that is done; nil discards them.
	Log io.Writer
}

// Cluster is a running etcd and kube-apiserver, and the nodes added to it. Its methods may be called concurrently.
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
	flags     []string // of the API server, besides ours
	ports     ports
	guard     *guard
	admin     *rest.Config

	mu        sync.Mutex
	etcd      *process
	apiserver *process
	apiPort   int
	etcdPort  int
	peerPort  int
	nodes     map[string]*Node
	stopped   bool

	controllers map[string]*process // by their names
}

// Start starts etcd and kube-apiserver, waits until the API is ready, and applies the manifests. If it fails, what it
// started is stopped, and the error carries the end of the log of the program that failed.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	module, moduleErr := moduleRoot()
	if moduleErr != nil {
		return nil, moduleErr
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
	if o.Manifests == "" {
		if dir := filepath.Join(module, "config", "api"); isDir(dir) {
			o.Manifests = dir
		}
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
		log:       slog.New(slog.NewTextHandler(o.Log, nil)),
		nodes:     map[string]*Node{},
	}
	for _, program := range []string{c.tool("etcd"), c.server} {
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("upstream binary missing, run `make tools`: %w", err)
		}
	}
	if err := c.takeDir(o.Dir); err != nil {
		return nil, err
	}
	if err := c.start(ctx, o.APIServerLater); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, later bool) error {
	begin := time.Now()
	var err error
	if c.guard, err = c.startGuard(ctx); err != nil {
		return err
	}
	if c.ca, err = newAuthority(filepath.Join(c.dir, "pki")); err != nil {
		return err
	}
	// Nobody can hold a port for another process. The ports are chosen so that only a program outside of this
	// package can take one; once more with others is enough then.
	err = c.startControlPlane(ctx, later)
	if errors.Is(err, errPortTaken) {
		c.log.Info("a port was taken, trying others")
		c.stopControlPlane()
		err = c.startControlPlane(ctx, later)
	}
	if err != nil || later {
		return err
	}
	if err := c.SetUp(ctx); err != nil {
		return err
	}
	c.log.Info("API is ready", "url", c.URL(), "after", time.Since(begin).Round(time.Millisecond))
	return nil
}

// SetUp makes of an API server that is ready, whoever started it, the cluster that Start returns: with a service account
// for pods, and the manifests applied. Calling it again does no harm.
func (c *Cluster) SetUp(ctx context.Context) error {
	if err := c.ensureServiceAccount(ctx, "default"); err != nil {
		return err
	}
	if c.manifests == "" {
		return nil
	}
	return c.Apply(ctx, c.manifests)
}

// ownDirs are what a cluster makes in its directory, and removes from that of an earlier one.
var ownDirs = []string{"pki", "etcd", "log", "kubeconfig", "nodes"}

// takeDir makes the directory and locks it. The lock is shared with the guard, so that a directory is free only when
// its cleaning up is over.
func (c *Cluster) takeDir(dir string) error {
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
	// The kernel shows paths without symbolic links in what is mounted.
	if c.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return fmt.Errorf("resolve the cluster's directory: %w", err)
	}
	lock := filepath.Join(c.dir, "localcluster.lock")
	if _, err := os.Stat(lock); errors.Is(err, os.ErrNotExist) {
		entries, err := os.ReadDir(c.dir)
		if err != nil {
			return fmt.Errorf("read the cluster's directory: %w", err)
		}
		if len(entries) > 0 {
			return fmt.Errorf("directory %s is neither empty nor that of an earlier cluster", c.dir)
		}
	}
	if c.lock, err = os.OpenFile(lock, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("lock the cluster's directory: %w", err)
	}
	if err := unix.Flock(int(c.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("directory %s is in use by another cluster: %w", c.dir, err), c.lock.Close())
	}
	for _, own := range ownDirs {
		own = filepath.Join(c.dir, own)
		if err := os.RemoveAll(own); err != nil {
			return errors.Join(fmt.Errorf("clear what an earlier cluster left: %w", err), c.lock.Close())
		}
		if err := os.Mkdir(own, 0o755); err != nil {
			return errors.Join(fmt.Errorf("make the cluster's directory: %w", err), c.lock.Close())
		}
	}
	return nil
}

// Stop stops the nodes, the controllers, the API server and etcd, and removes a temporary directory. Calling it again does nothing.
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
	errs = append(errs, c.lock.Close())
	c.log.Info("stopped", "dir", c.dir)
	return errors.Join(errs...)
}

// Dir is the cluster's directory, absolute and without symbolic links.
func (c *Cluster) Dir() string { return c.dir }

// URL is the address of the API server. It stays the same over StopAPIServer and StartAPIServer.
func (c *Cluster) URL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.url()
}

func (c *Cluster) url() string { return fmt.Sprintf("https://127.0.0.1:%d", c.apiPort) }

// AdminConfig is a new client configuration of a cluster administrator, without client-side rate limits to speak of.
func (c *Cluster) AdminConfig() *rest.Config { return rest.CopyConfig(c.admin) }

func (c *Cluster) tool(name string) string { return filepath.Join(c.tools, name) }

func (c *Cluster) logFile(name string) string { return filepath.Join(c.dir, "log", name+".log") }

// moduleRoot is the directory of the go.mod at or above the working directory.
func moduleRoot() (string, error) {
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
