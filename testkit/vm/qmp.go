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
	mu      sync.Mutex // one command at a time
	last    int        // the number of the last command
	conn    net.Conn
	answers chan answer
	broken  chan struct{} // closed when QEMU has closed the connection, or stopped the machine
	err     error         // why, once broken is closed
}

// answer is an answer to a command, or an event.
type answer struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	ID    int    `json:"id"`
	Event string `json:"event"`
	Data  struct {
		Device string `json:"device"`
		Reason string `json:"reason"`
		Action string `json:"action"`
	} `json:"data"`
}

// read receives until the connection ends or QEMU stops the machine because it
// cannot write a disk: the disk of the host is full.
func (q *qmp) read() {
	defer close(q.broken)
	decoder := json.NewDecoder(q.conn)
	for {
		var a answer
		if q.err = decoder.Decode(&a); q.err != nil {
			return
		}

		switch {
		case a.Event == "BLOCK_IO_ERROR" && a.Data.Action == "stop":
			q.err = fmt.Errorf("QEMU has stopped the machine: it cannot use the file of %s: %s", a.Data.Device, a.Data.Reason)
			return
		case a.Error != nil || a.Return != nil:
			q.answers <- a
		}
	}
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
			q := &qmp{conn: conn, answers: make(chan answer, 1), broken: make(chan struct{})}
			go q.read()
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

// execute sends a command without arguments, and waits for its answer. The
// greeting and events are skipped.
func (q *qmp) execute(ctx context.Context, command string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	q.last++
	if err := json.NewEncoder(q.conn).Encode(map[string]any{"execute": command, "id": q.last}); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}

	for {
		select {
		case a := <-q.answers:
			if a.ID != q.last { // of a command that was not waited for
				continue
			}
			if a.Error != nil {
				return fmt.Errorf("%s: %s", command, a.Error.Desc)
			}

			return nil
		case <-q.broken:
			return fmt.Errorf("%s: %w", command, q.err)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", command, ctx.Err())
		}
	}
}

func (q *qmp) close() { _ = q.conn.Close() } // QEMU has ended
