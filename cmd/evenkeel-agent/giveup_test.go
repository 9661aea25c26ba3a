// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestANodeIsGivenUpAfterATrialHadItsTime(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  time.Duration
	}{
		{nil, 5 * time.Minute}, {[]string{"--health-timeout=10m"}, 20 * time.Minute},
		{[]string{"--give-up-after=0"}, 0}, {[]string{"--give-up-after=3m"}, 3 * time.Minute},
	} {
		o, f := &options{}, pflag.NewFlagSet("agent", pflag.ContinueOnError)
		o.bind(f)
		assert.NoError(t, f.Parse(c.flags))
		if err := o.check(); err != nil || o.giveUpAfter() != c.want {
			t.Errorf("%q: %s, %v, want %s", c.flags, o.giveUpAfter(), err, c.want)
		}
	}

	_, err := runs(t, "--give-up-after=2m", "--", "/not/there")
	wantUsage(t, err, "--give-up-after (2m0s) must be longer than --health-timeout (2m0s): a trial must be able to roll back first")
}
