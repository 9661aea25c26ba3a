// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/cmd/evenkeel-agent/inspect"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

func TestOnlyWhatWasReportedBeforeACutIsKnown(t *testing.T) {
	r := &run{facts: []fact{{at: 10, active: "a"}, {at: 20, active: "b"}, {at: 20, active: "c"}, {at: 30, active: "d"}}}
	for at, want := range map[int64]string{9: "", 10: "a", 19: "a", 20: "c", 29: "c", 30: "d", 99: "d"} {
		assert.Equal(t, r.known(at).active, want, "at", at)
	}
}

func TestRecordsThatForgetOrRetryAreFound(t *testing.T) {
	of := func(uid string) trial.Config {
		return trial.Config{Revision: uid, ConfigRevision: v1alpha1.ConfigRevision{UID: types.UID(uid)}}
	}
	adopted := func(uid string) trial.AdoptedConfig { return trial.AdoptedConfig{Config: of(uid)} }
	bad := func(uid string) []trial.BadConfig {
		return []trial.BadConfig{{Revision: uid}}
	}
	c := &cut{run: &run{good: config{"good", "1"}, bad: config{"bad", "2"}}}
	rejected := fact{agent: installed, assigned: c.run.bad, active: "1", good: "1", bad: []string{"2"}}
	for name, tt := range map[string]struct {
		known fact
		s     inspect.Summary
		want  string
	}{
		"all is remembered": {rejected, inspect.Summary{Runs: of("1"), State: trial.State{LastKnownGood: adopted("1"), Bad: bad("2")}}, ""},
		"more is decided":   {fact{assigned: c.run.good}, inspect.Summary{Runs: of("1"), State: trial.State{LastKnownGood: adopted("1")}}, ""},
		"it is on trial":    {fact{assigned: c.run.bad, good: "1"}, inspect.Summary{Runs: of("2"), State: trial.State{LastKnownGood: adopted("1"), Trial: &trial.Trial{}}}, ""},
		"it runs something": {rejected, inspect.Summary{Runs: of("3"), State: trial.State{LastKnownGood: adopted("1"), Bad: bad("2")}}, `the node runs "3"`},
		"no promotion":      {rejected, inspect.Summary{State: trial.State{Bad: bad("2")}}, `last-known-good is "", and was 1`},
		"no rejection":      {rejected, inspect.Summary{Runs: of("1"), State: trial.State{LastKnownGood: adopted("1")}}, "the rejected configuration 2 is forgotten"},
		"it runs again":     {rejected, inspect.Summary{Runs: of("2"), State: trial.State{LastKnownGood: adopted("1"), Bad: bad("2")}}, "the rejected configuration 2 runs again"},
		"it is current":     {rejected, inspect.Summary{Runs: of("1"), State: trial.State{Current: adopted("2"), Trial: &trial.Trial{}, LastKnownGood: adopted("1"), Bad: bad("2")}}, ""},
		"the good is bad":   {fact{assigned: c.run.good}, inspect.Summary{State: trial.State{Bad: bad("1")}}, "the good configuration is rejected"},
	} {
		err := must.Try(func() { remembers(c, tt.s, tt.known) })
		assert.That(t, (err == nil) == (tt.want == "") && strings.HasPrefix(fmt.Sprint(err), cmp.Or(tt.want, "<nil>")),
			"%s: %v, want %q", name, err, tt.want)
	}
}
