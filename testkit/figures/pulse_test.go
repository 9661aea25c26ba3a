// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"errors"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheTimeWithoutAnswersLastsFromTheLastGoodProbeToTheEndOfTheLastOutage(t *testing.T) {
	refused := errors.New("connection refused")
	for _, c := range []struct {
		probes  string // one each second: + is an answer
		seconds int
		answers bool
	}{
		{"", 0, true},
		{"+++", 0, true},
		{"++--+", 3, true},
		{"++--+-+", 5, true}, // a crash loop: answers between two crashes do not count
		{"+-", 1, false},
		{"--+", 3, true}, // the first start
	} {
		start := time.Unix(1000, 0)
		p := &Pulse{}
		p.Begin(start)
		now := start
		for _, probe := range c.probes {
			now = now.Add(time.Second)
			p.observe(now, map[rune]error{'-': refused}[probe])
		}

		got, answers := p.Without(now)
		assert.That(t, got == time.Duration(c.seconds)*time.Second && answers == c.answers,
			"%q: %s, answers %t; want %d s, %t", c.probes, got, answers, c.seconds, c.answers)
		for _, o := range p.Outages() {
			assert.Is(t, o.Why, refused, c.probes)
		}
	}
}
