// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/rollout"
)

func TestTheDurationOfATrialComesFromAgents(t *testing.T) {
	f := &Fleet{Nodes: []rollout.Node{{TrialLength: time.Minute}, {TrialLength: 2 * time.Minute}, {}}}
	if got := f.TrialTime(0); got != 2*time.Minute {
		t.Errorf("it is %s, want the longest", got)
	}

	f.trial = 90 * time.Second
	if got := f.TrialTime(0); got != 90*time.Second {
		t.Errorf("it is %s, want the default that agents report: a present trial can have another length", got)
	}
	if got := f.TrialTime(5 * time.Minute); got != 5*time.Minute {
		t.Errorf("it is %s, want what is asked for", got)
	}
	if got := (&Fleet{}).TrialTime(0); got != 10*time.Minute {
		t.Errorf("it is %s, want the default", got)
	}
}
