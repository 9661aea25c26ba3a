// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/auditlog"
)

// epoch is the begin of a measurement.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns a request that was received and answered at a second.
func at(second int, r auditlog.Request) auditlog.Request {
	r.Received = epoch.Add(time.Duration(second) * time.Second)
	r.Answered = r.Received.Add(100 * time.Millisecond)
	if r.Code == 0 {
		r.Code = 200
	}

	return r
}

func TestTheTimeUntilHealthyIsToTheFirstRenewalAfterTheAssignment(t *testing.T) {
	renewal := func(node string) auditlog.Request {
		return auditlog.Request{Program: "evenkeel-hollow", Verb: "patch", Resource: "leases", Name: node}
	}
	got := untilHealthy([]auditlog.Request{
		at(-1, auditlog.Request{Assigns: "before", Name: "old"}),
		at(1, renewal("a")), // before its assignment
		at(2, auditlog.Request{Assigns: "r", Name: "a"}),
		at(2, auditlog.Request{Assigns: "r", Name: "b"}),
		at(2, auditlog.Request{Assigns: "r", Name: "refused", Code: 429}),
		at(2, auditlog.Request{Assigns: "r", Name: "never"}),
		at(9, renewal("a")), at(5, renewal("a")), at(12, renewal("b")), at(12, renewal("old")), at(12, renewal("refused")),
		at(3, auditlog.Request{Program: "kubelet", Resource: "leases", Name: "b"}),
	}, epoch)
	slices.Sort(got)
	want := []time.Duration{2900 * time.Millisecond, 9900 * time.Millisecond}
	assert.That(t, slices.Equal(got, want), "nodes were healthy after %v, want %v", got, want)
}
