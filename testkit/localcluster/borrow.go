// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"syscall"

	"github.com/evenkeel/evenkeel/testkit/must"
)

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
