// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// Pool lends control planes to the processes of a test run, each to one process
// at a time. It starts one when all are in use, and resets each before it lends
// it again: a borrower finds nothing of the borrower before.
type Pool struct {
	Socket string

	dir    string
	end    context.CancelFunc
	served chan error

	mu      sync.Mutex
	idle    []*member
	started int
}

// mostIdle limits the control planes that wait for a borrower, because each has
// some hundred MiB of memory.
const mostIdle = 3

// member is a control plane of a pool, with what it held before anything was
// applied, and after the default manifests were.
type member struct {
	*Cluster
	bare, full *snapshot
	last       *snapshot // what it was reset to most recently
}

// StartPool starts a pool of control planes with the default manifests.
func StartPool() (*Pool, error) {
	dir, err := os.MkdirTemp("", "evk-pool-")
	if err != nil {
		return nil, fmt.Errorf("make a pool of control planes: %w", err)
	}

	p := &Pool{Socket: filepath.Join(dir, "socket"), dir: dir, served: make(chan error, 1)}
	listener, err := net.Listen("unix", p.Socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pool of control planes: %w", err), os.RemoveAll(dir))
	}

	ctx, end := context.WithCancel(context.Background())
	p.end = end
	go func() { p.served <- p.serveAll(ctx, listener) }()

	return p, nil
}

// Stop stops the pool and its control planes, also those that are lent.
func (p *Pool) Stop() error {
	p.end()
	return errors.Join(<-p.served, os.RemoveAll(p.dir))
}

// Started returns how many control planes the pool has started so far.
func (p *Pool) Started() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

// serveAll lends control planes until the context ends, and stops them all.
func (p *Pool) serveAll(ctx context.Context, listener net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	var borrowers sync.WaitGroup
	var err error
	for {
		var conn net.Conn
		if conn, err = listener.Accept(); err != nil {
			break
		}

		borrowers.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			p.serve(ctx, conn)
		})
	}

	if ctx.Err() != nil {
		err = nil
	}

	borrowers.Wait()
	errs := []error{err}
	for _, m := range p.idle {
		errs = append(errs, m.Stop())
	}

	return errors.Join(errs...)
}

// serve answers the requests of one borrower, until it is gone.
func (p *Pool) serve(ctx context.Context, conn net.Conn) {
	l := &loan{ctx: ctx, pool: p}
	server := rpc.NewServer()
	if err := server.RegisterName("Loan", l); err != nil {
		panic(err)
	}

	server.ServeConn(conn)
	if l.m == nil {
		return
	}
	if err := awaitUnlocked(ctx, l.dir); err != nil {
		slog.Error("cannot wait for the end of a borrower", "err", err)
	}

	p.putBack(l.m)
}

// loan has the methods that a borrower calls, Borrow first.
type loan struct {
	ctx  context.Context // of the pool
	pool *Pool
	dir  string // of the borrower
	m    *member
}

// Borrow takes an idle control plane, or starts one, and resets it.
func (l *loan) Borrow(w Wish, lent *Lent) (err error) {
	defer must.Catch(&err)

	full := w.Manifests == defaultManifests(must.Get(ModuleRoot()))
	for {
		m := l.pool.takeIdle(full)
		fresh := m == nil
		if fresh {
			m = must.Get(l.pool.startMember(l.ctx))
		}

		to := m.bare
		if full {
			to = m.full
		}

		if err := m.reset(l.ctx, to); err != nil {
			err = errors.Join(fmt.Errorf("reset a control plane: %w", err), m.Stop())
			if fresh || l.ctx.Err() != nil {
				return err
			}

			slog.Error("a control plane is replaced", "err", err)
			continue
		}

		l.dir, l.m = w.Dir, m
		*lent = Lent{PKI: m.ca.dir, Port: m.apiPort, Applied: full}

		return nil
	}
}

// Stop stops the API server of the control plane.
func (l *loan) Stop(bool, *bool) error { return l.m.StopAPIServer() }

// Start starts it again.
func (l *loan) Start(bool, *bool) error { return l.m.StartAPIServer(l.ctx) }

// takeIdle takes an idle control plane out of the pool, preferably one that
// needs not get or lose the default manifests. It returns nil if there is none.
func (p *Pool) takeIdle(full bool) *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}

	i := max(0, slices.IndexFunc(p.idle, func(m *member) bool { return (m.last == m.full) == full }))
	m := p.idle[i]
	p.idle = slices.Delete(p.idle, i, i+1)

	return m
}

func (p *Pool) putBack(m *member) {
	p.mu.Lock()
	keep := len(p.idle) < mostIdle
	if keep {
		p.idle = append(p.idle, m)
	}

	p.mu.Unlock()
	if !keep {
		if err := m.Stop(); err != nil {
			slog.Error("cannot stop a control plane", "err", err)
		}
	}
}

func (p *Pool) startMember(ctx context.Context) (*member, error) {
	c, err := Start(ctx, Options{Manifests: NoManifests})
	if err != nil {
		return nil, err
	}

	p.mu.Lock()
	p.started++
	p.mu.Unlock()
	m := &member{Cluster: c}
	if err := m.takeSnapshots(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}

	return m, nil
}

func (m *member) takeSnapshots(ctx context.Context) (err error) {
	defer must.Catch(&err)

	must.OK(m.awaitBootstrap(ctx))
	m.bare = must.Get(m.takeSnapshot(ctx))
	must.OK(errors.Join(m.Apply(ctx, defaultManifests(m.module)), m.awaitPolicies(ctx)))
	m.full = must.Get(m.takeSnapshot(ctx))
	m.last = m.full

	return nil
}

// awaitUnlocked waits until the guard of a borrower that was killed has stopped
// everything that the borrower had started, or until the context ends.
func awaitUnlocked(ctx context.Context, dir string) error {
	lock, err := os.Open(filepath.Join(dir, "localcluster.lock"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // the borrower or its guard has removed it at its end
	}
	if err != nil {
		return err
	}

	defer lock.Close()

	return retry(ctx, func(context.Context) error { return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) },
		func(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) })
}

// PoolEnv is the environment variable with the socket of a Pool.
const PoolEnv = "EVENKEEL_TEST_POOL"

// Borrow borrows a control plane from the pool that the environment names, and
// makes a cluster with it. Without a pool, or with options that need another
// control plane than the pool has, it starts one, like Start.
//
// The caller has the borrowed control plane for itself until Stop. It may do
// everything that it may do with its own, also stop the API server. It finds in
// it the manifests of the options and nothing else.
func Borrow(ctx context.Context, o Options) (*Cluster, error) {
	socket := poolSocket()
	if socket == "" || o.APIServerLater || o.APIServer != "" || len(o.APIServerFlags) > 0 || len(o.EtcdFlags) > 0 {
		return Start(ctx, o)
	}

	c, err := prepare(o)
	if err != nil {
		return nil, err
	}
	if err := c.borrow(ctx, socket); err != nil {
		return nil, errors.Join(fmt.Errorf("borrow a control plane from the pool at %s: %w", socket, err), c.Stop())
	}

	return c, nil
}

// poolSocket returns the socket of the pool that the environment names, or "".
// It does not use os.Getenv: go test would make the variable part of the key
// under which it stores a result, and the result does not depend on who started
// the control plane.
func poolSocket() string {
	socket, _ := syscall.Getenv(PoolEnv)
	return socket
}

func (c *Cluster) borrow(ctx context.Context, socket string) (err error) {
	defer must.Catch(&err)

	c.guard = must.Get(c.startGuard(ctx))
	conn := must.Get((&net.Dialer{}).DialContext(ctx, "unix", socket))
	c.lease = &lease{rpc.NewClient(conn)}
	var lent Lent
	must.OK(c.lease.call(ctx, "Borrow", Wish{Dir: c.dir, Manifests: c.manifests}, &lent))
	c.ca = must.Get(loadAuthority(lent.PKI))
	c.apiPort = lent.Port
	c.admin = must.Get(c.makeAdmin())
	if lent.Applied {
		return nil
	}

	return c.SetUp(ctx)
}

// Wish is what a borrower wants of the pool.
type Wish struct {
	Dir       string // of the borrower: its guard keeps it locked until nothing of the borrower runs any more
	Manifests string
}

// Lent is what a borrower gets.
type Lent struct {
	PKI     string // the directory of the authority
	Port    int    // of the API server
	Applied bool   // the manifests are applied
}

// lease is the connection through which a borrower has its control plane. The
// pool takes the control plane back when it is closed, which the kernel does if
// the borrower is killed.
type lease struct{ *rpc.Client }

func (l *lease) call(ctx context.Context, method string, in, out any) error {
	call := l.Go("Loan."+method, in, out, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lease) close() error {
	if l == nil {
		return nil
	}

	return l.Close()
}
