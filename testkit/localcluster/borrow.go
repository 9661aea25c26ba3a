// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// PoolEnv is the environment variable with the socket of a Pool.
const PoolEnv = "EVENKEEL_TEST_POOL"

// Borrow borrows a control plane from the pool that the environment names, and makes a cluster with it. Without a pool, or with options
// that need another control plane than the pool has, it starts one, like Start.
//
// The caller has the borrowed control plane for itself until Stop. It may do everything that it may do with its own, also stop the
// API server. It finds in it the manifests of the options and nothing else.
func Borrow(ctx context.Context, o Options) (*Cluster, error) {
	socket := poolSocket()
	if socket == "" || o.Private || o.APIServerLater || o.APIServer != "" || o.Tools != "" || len(o.APIServerFlags) > 0 || len(o.EtcdFlags) > 0 {
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

// poolSocket returns the socket of the pool that the environment names, or "". It does not use os.Getenv: go test would make the
// variable part of the key under which it stores a result, and the result does not depend on who started the control plane.
func poolSocket() string {
	socket, _ := syscall.Getenv(PoolEnv)
	return socket
}

func (c *Cluster) borrow(ctx context.Context, socket string) (err error) {
	defer must.Catch(&err)

	begin := time.Now()
	c.guard = must.Get(c.startGuard(ctx))
	conn := must.Get((&net.Dialer{}).DialContext(ctx, "unix", socket))
	c.lease = &lease{conn: conn, answers: json.NewDecoder(conn)}
	lent := must.Get(c.lease.ask(ctx, poolRequest{Do: borrowServer, Dir: c.dir, Manifests: c.manifests}))
	c.ca = must.Get(loadAuthority(lent.PKI))
	c.mu.Lock()
	c.apiPort = lent.Port
	c.mu.Unlock()
	c.admin = must.Get(c.makeAdmin())
	if !lent.Applied {
		must.OK(c.SetUp(ctx))
	}
	c.log.Info("borrowed a control plane", "url", c.URL(), "after", time.Since(begin).Round(time.Millisecond))
	return nil
}

// What a borrower asks of the pool. Each request on a connection has one answer, and the first is borrowServer.
const (
	borrowServer = "borrow"
	stopServer   = "stop the API server"
	startServer  = "start the API server"
)

type poolRequest struct {
	Do string
	// Of borrowServer: the borrower's directory, which its guard keeps locked until nothing of the borrower runs any more; and the
	// manifests that it wants.
	Dir, Manifests string
}

type poolAnswer struct {
	Error   string
	PKI     string // the directory of the authority
	Port    int    // of the API server
	Applied bool   // the manifests are applied
}

// lease is the connection through which a borrower has its control plane. The pool takes the control plane back when it is
// closed, which the kernel does if the borrower is killed.
type lease struct {
	mu      sync.Mutex
	conn    net.Conn
	answers *json.Decoder
}

// ask sends a request and waits for its answer. After the end of the context the lease cannot be used again.
func (l *lease) ask(ctx context.Context, r poolRequest) (poolAnswer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Now()) })()
	var answer poolAnswer
	err := json.NewEncoder(l.conn).Encode(r)
	if err == nil {
		err = l.answers.Decode(&answer)
	}
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		return poolAnswer{}, errors.Join(fmt.Errorf("%s: %w", r.Do, err), ctx.Err())
	}
	return answer, nil
}

func (l *lease) close() error {
	if l == nil {
		return nil
	}
	return l.conn.Close()
}
