// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/evenkeel/evenkeel/testkit/transcript"
)

// TestTranscripts runs the transcripts of operations: commands change the
// cluster, and `run` prints the decisions. Rewrite them with: go test
// ./internal/operator/installer -run Transcripts -rewrite
func TestTranscripts(t *testing.T) {
	transcript.Run(t, func(*testing.T) transcript.Command { return newWorld().command })
}

func (w *world) command(t *testing.T, td *datadriven.TestData, out *strings.Builder) error {
	known := []string{"policy max-unavailable", "policy timeout", "policy retry", "policy uninstall", "api down", "api up", "run for"}
	for _, arg := range td.CmdArgs {
		if td.Cmd != "node" && !slices.Contains(known, td.Cmd+" "+arg.Key) {
			return fmt.Errorf("unknown: %s %s", td.Cmd, arg.Key)
		}
	}

	switch td.Cmd {
	case "policy":
		td.MaybeScanArgs(t, "max-unavailable", &w.policy.MaxUnavailable)
		td.MaybeScanArgs(t, "timeout", &w.policy.Timeout)
		td.MaybeScanArgs(t, "retry", &w.policy.Retry)
		if td.HasArg("uninstall") {
			w.policy.Operation = Uninstall
		}
	case "api":
		w.apiDown = td.HasArg("down")
	case "node":
		for _, arg := range td.CmdArgs {
			w.node(arg.Key)
			for _, verb := range arg.Vals {
				if err := w.set(arg.Key, verb); err != nil {
					return err
				}
			}
		}
	case "start":
		w.start()
		for _, n := range w.progress.Nodes {
			fmt.Fprintln(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", n.Name, n.State.Stage, n.State.Why)))
		}
	case "run", "interrupt":
		most, interrupted := time.Hour, td.Cmd == "interrupt"
		td.MaybeScanArgs(t, "for", &most)
		if interrupted {
			w.read = nil
		}

		w.run(out, most, interrupted)
		fmt.Fprintln(out, w.labels())
	default:
		return fmt.Errorf("unknown command %q", td.Cmd)
	}

	return nil
}
