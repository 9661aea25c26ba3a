package localcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// ports hands out free TCP ports, and keeps them from every other cluster on this machine until released: each is
// reserved with an abstract unix socket of that number, which the kernel drops with the process. They lie below the
// range from which Linux takes the ports of outgoing connections.
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
		// All addresses: the kubelet listens on all of them, and that fails if any one is taken.
		probe, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			errs = append(errs, err, reserved.Close())
			continue
		}
		if err := probe.Close(); err != nil {
			errs = append(errs, err, reserved.Close())
			continue
		}
		p.held = append(p.held, reserved)
		return port, nil
	}
	return 0, fmt.Errorf("no free port: %w", errors.Join(errs...))
}

func (p *ports) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.held {
		_ = l.Close() // an abstract socket leaves nothing behind that could fail to go
	}
	p.held = nil
}
