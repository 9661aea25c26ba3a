// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"fmt"
	"net"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestPortsAreNeverAllocatedTwice(t *testing.T) {
	var one, two ports
	defer one.release()
	defer two.release()
	seen := map[int]bool{}
	for range 100 {
		for _, p := range []*ports{&one, &two} {
			port := assert.Value(p.take())(t)
			if seen[port] || port < firstPort || port > lastPort {
				t.Errorf("port %d: given before (%v) or out of range", port, seen[port])
			}
			seen[port] = true
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				t.Errorf("a port that was given is not free: %v", err)
				continue
			}
			assert.OK(t, l.Close())
		}
	}
}
