// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestNodesAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(t)
		a := api.AddNode("watched-a", "watched", "z1")
		nc := api.AddNodeConfig("watched-a", nil, nil)
		b := api.AddNode("watched-b", "watched", "z1")
		api.AddRollout("turns", "watched", fakeapi.Pods(50), nil)
		table, lines := api.Begin("nodes", "-w", "-l", "pool=watched"), api.Begin("nodes", "-w", "-o", "json", "-l", "pool=watched")
		failed, turns := api.Begin("nodes", "-w", "-o", "name", "--failed", "-l", "pool=watched"), api.Begin("nodes", "-w", "--rollout", "turns")
		next := func() { time.Sleep(10 * time.Second); synctest.Wait() }
		next()
		fakeapi.Failing(&nc.Status, "CrashLooped", "it crash-looped")
		api.Report(nc)
		next()
		assert.NoError(t, api.Delete(t.Context(), b))
		next()
		api.AddNode("watched-b", a.Labels["pool"], "z1")
		next()
		for _, r := range []fakeapi.Running{table, lines, failed, turns} {
			r.Interrupt()
			(<-r.Ended).Want(t, command.ExitComplete, nil)
		}
		// One header, and one line for each change.
		var names []string
		for line := range strings.Lines(fakeapi.Squeeze(table.Out.String())) {
			names = append(names, strings.Join(strings.Fields(line)[:2], " "))
		}
		if got, want := strings.Join(names, ", "), "NAME HEALTH, watched-a Healthy, watched-b NoAgent, watched-a Failed, watched-b NoAgent"; got != want {
			t.Errorf("the table is %s, want %s", got, want)
		}
		assert.That(t, strings.Contains(table.Err.String(), "note: node watched-b is no longer listed"), "the notes are %s", table.Err)
		assert.That(t, strings.Count(lines.Out.String(), `"name":"watched-`) == 4, "the lines are %s", lines.Out)
		for line := range strings.Lines(lines.Out.String()) {
			assert.That(t, strings.HasPrefix(line, `{"name":"watched-`) && strings.HasSuffix(line, "}\n"), "%q is no object in one line", line)
		}
		assert.Equal(t, failed.Out.String(), "node/watched-a\n", "the failed nodes")
		got := turns.Out.String()
		assert.That(t, strings.Count(got, "watched-a ") == 2 && strings.Count(got, "watched-b ") == 2, "the nodes of the rollout are:\n%s", got)
	})
}

func TestAWatchNeedsPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(t)
		api.Forbid("watch", "NodeConfig")
		api.Run("nodes", "-w").WantError(t, "is forbidden", "evenkeel's role evenkeel-view includes this permission")
	})
}
