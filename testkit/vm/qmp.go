// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// qmp is a connection to QEMU's monitor.
type qmp struct {
	mu      sync.Mutex
	conn    net.Conn
	decoder *json.Decoder
}

// dialQMP connects as soon as QEMU listens, unless it ends before.
func dialQMP(ctx context.Context, socket string, ended <-chan struct{}) (*qmp, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			q := &qmp{conn: conn, decoder: json.NewDecoder(conn)}
			if err := q.execute(ctx, "qmp_capabilities"); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
			return q, nil
		}
		select {
		case <-ended:
			return nil, errors.New("it ended at once")
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// execute sends a command without arguments, and waits for its answer. The greeting and events are skipped.
func (q *qmp) execute(ctx context.Context, command string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Minute)
	}
	if err := q.conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := json.NewEncoder(q.conn).Encode(map[string]string{"execute": command}); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	for {
		var answer struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := q.decoder.Decode(&answer); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		switch {
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", command, answer.Error.Desc)
		case answer.Return != nil:
			return nil
		}
	}
}

func (q *qmp) close() { _ = q.conn.Close() } // QEMU has ended
