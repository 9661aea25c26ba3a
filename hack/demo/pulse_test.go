// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheTimeWithoutHealthLastsFromTheLastGoodProbeToTheReturnOfHealth(t *testing.T) {
	for _, c := range []struct {
		probes  string // one each second: + is healthy
		seconds int
		healthy bool
	}{
		{"", 0, true},
		{"+++", 0, true},
		{"++--+", 3, true},
		{"++--+-+", 5, true}, // a crash loop: health between two crashes does not count
		{"+-", 1, false},
		{"--+", 3, true}, // the first start
	} {
		start := time.Unix(1000, 0)
		p := &pulse{}
		p.begin(start)
		now := start
		for _, probe := range c.probes {
			now = now.Add(time.Second)
			p.observe(now, probe == '+')
		}

		got, healthy := p.unhealthy(now)
		assert.That(t, got == time.Duration(c.seconds)*time.Second && healthy == c.healthy,
			"%q: %s, healthy %t; want %d s, %t", c.probes, got, healthy, c.seconds, c.healthy)
	}
}
