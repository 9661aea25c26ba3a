// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

func TestIdleClientsAreLimited(t *testing.T) {
	address := localcluster.FreeAddressForTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	a := New(Options{Log: slog.New(slog.DiscardHandler)}, Parts{})
	all.Go(func() { a.Serve(ctx, address) })

	var open []net.Conn
	answered := func(c net.Conn) bool {
		t.Helper()
		fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(make([]byte, 1))

		return n == 1 && (err == nil || err == io.EOF)
	}
	for i := range maxConnections + 1 {
		c, err := net.Dial("tcp", address)
		for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
			c, err = net.Dial("tcp", address) // it is about to listen
		}
		assert.NoError(t, err)
		defer c.Close()
		open = append(open, c)
		ok := answered(c)
		assert.Must(t, ok == (i < maxConnections), "client %d was answered: %v", i+1, ok)
	}

	open[0].Close()
	assert.That(t, answered(open[maxConnections]), "who waited was not answered when another left")
	s := NewServer(http.NotFoundHandler())
	assert.That(t, s.IdleTimeout > 0 && s.ReadTimeout > 0 && s.WriteTimeout > 0, "the server has no timeouts: %+v", s)
}

func TestTheServerListensWhenItsPortIsFreeAgain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NoError(t, err)
	address, log := taken.Addr().String(), &lines{}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	a := New(Options{Log: slog.New(slog.NewTextHandler(log, nil))}, Parts{})
	all.Go(func() { a.Serve(ctx, address) })
	eventually(t, "the agent says that the port is taken", func() bool { return log.count("address already in use") > 0 })
	<-time.After(2 * listenInterval)
	assert.NoError(t, taken.Close())
	eventually(t, "the agent answers", func() bool {
		r, err := http.Get("http://" + address + "/healthz")
		if err == nil {
			r.Body.Close()
		}

		return err == nil
	})
	assert.That(t, log.count("cannot serve") == 1 && log.count(`msg="serving /healthz, /metrics and /configz"`) == 1,
		"the log:\n%s", log.tail())
}
