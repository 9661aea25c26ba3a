// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// ports allocates free TCP ports, and keeps other clusters on this machine from
// using them until release: an abstract unix socket with the port's number
// reserves each port until the process ends. The ports are below the range that
// Linux uses for outgoing connections.
type ports struct {
	mu   sync.Mutex
	held []net.Listener
}

const (
	firstPort = 20000
	lastPort  = 31999
)

func (p *ports) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const count = lastPort - firstPort + 1
	start := rand.IntN(count)
	var errs []error
	for i := range 200 {
		port := firstPort + (start+i)%count
		reserved, err := net.Listen("unix", fmt.Sprintf("@evenkeel-localcluster-%d", port))
		if err != nil {
			errs = append(errs, err)
			continue
		}

		// On all addresses, because the kubelet listens on all of them.
		probe, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err == nil {
			err = probe.Close()
		}
		if err != nil {
			errs = append(errs, err, reserved.Close())
			continue
		}

		p.held = append(p.held, reserved)

		return port, nil
	}

	return 0, fmt.Errorf("no free port: %w", errors.Join(errs...))
}

// own are ports that this process has until it ends.
var own ports

// FreeAddress returns an address on loopback, for a program that may be started
// several times. Nobody else listens on it, and no outgoing connection uses its
// port.
func FreeAddress() (string, error) {
	port, err := own.take()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

func (p *ports) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.held {
		_ = l.Close() // closing an abstract socket cannot leave anything behind
	}

	p.held = nil
}
