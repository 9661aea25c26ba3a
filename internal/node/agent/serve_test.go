package main

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

	"github.com/evenkeel/evenkeel/internal/node/agent"
)

func TestClientsThatStayDoNotTakeAllDescriptors(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	o := &options{listen: address}
	o.listenAndServe(ctx, &all, agent.New(agent.Options{}, agent.Parts{}), nil, slog.New(slog.DiscardHandler))

	var open []net.Conn
	answered := func(c net.Conn) bool {
		t.Helper()
		fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(make([]byte, 1))
		return n == 1 && (err == nil || err == io.EOF)
	}
	for i := range mostConnections + 1 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
		if ok := answered(c); ok != (i < mostConnections) {
			t.Fatalf("client %d was answered: %v", i+1, ok)
		}
	}
	open[0].Close()
	if !answered(open[mostConnections]) {
		t.Error("who waited was not answered when another left")
	}
	if s := agent.NewServer(http.NotFoundHandler()); s.IdleTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 {
		t.Errorf("what is idle stays: %+v", s)
	}
}
