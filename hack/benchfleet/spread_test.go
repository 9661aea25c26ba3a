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

func TestAssignmentsAfterTheFirstFailureAreCounted(t *testing.T) {
	failure := auditlog.Request{Program: "evenkeel-agent", Resource: "nodeconfigs/status", Failed: true}
	assign := auditlog.Request{Assigns: "bad"}
	refused := assign
	refused.Code = 409
	requests := []auditlog.Request{
		at(-5, failure), at(1, assign), at(2, assign), at(4, failure), at(3, failure), at(5, assign), at(6, assign), at(8, refused),
		at(7, auditlog.Request{Assigns: "the one before"}), // taken back
	}
	took, after, assigned, failed := lastAfterFailure(requests, "bad", epoch)
	assert.That(t, took == 3*time.Second && after == 2 && assigned == 4 && failed,
		"the last assignment came %s after the failure, %d of %d came after it, failed %v; want 3s, 2 of 4, true", took, after, assigned, failed)
	took, after, assigned, failed = lastAfterFailure(requests[1:3], "bad", epoch)
	assert.That(t, took == 0 && after == 0 && assigned == 2 && !failed,
		"without a failure: %s, %d of %d, failed %v; want 0s, 0 of 2, false", took, after, assigned, failed)
}
