// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"fmt"
	"strconv"
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

func (w *world) command(_ *testing.T, td *datadriven.TestData, out *strings.Builder) error {
	most := time.Hour
	for _, arg := range td.CmdArgs {
		value := strings.Join(arg.Vals, ",")
		var err error
		switch td.Cmd + " " + arg.Key {
		case "policy operation":
			w.policy.Operation = map[string]Operation{"install": Install, "uninstall": Uninstall}[value]
		case "policy max-unavailable":
			w.policy.MaxUnavailable, err = strconv.Atoi(value)
		case "policy timeout":
			w.policy.Timeout, err = time.ParseDuration(value)
		case "policy retry":
			w.policy.Retry = value == "true"
		case "run for":
			most, err = time.ParseDuration(value)
		case "api down", "api up":
			w.apiDown = arg.Key == "down"
		default:
			if td.Cmd != "node" {
				return fmt.Errorf("unknown: %s %s", td.Cmd, arg.Key)
			}

			for _, verb := range arg.Vals {
				if err := w.set(arg.Key, verb); err != nil {
					return err
				}
			}

			w.node(arg.Key)
		}

		if err != nil {
			return err
		}
	}

	switch td.Cmd {
	case "start":
		w.start()
		for _, n := range w.progress.Nodes {
			fmt.Fprintln(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", n.Name, n.State.Stage, n.State.Why)))
		}
	case "run", "interrupt":
		if td.Cmd == "interrupt" {
			w.read = nil
		}

		w.run(out, most, td.Cmd == "interrupt")
		fmt.Fprintln(out, w.labels())
	}

	return nil
}
