// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/installer"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// conclude prints the result of an operation, why nodes failed, and what to do next.
func (a *app) conclude(ctx context.Context, c client.Client, out io.Writer, p *installer.Pacer) error {
	for _, n := range p.Progress.Nodes {
		if n.State.Stage == installer.Failed && !n.Begun.IsZero() {
			showFailure(ctx, c, out, n)
		}
	}
	words := fmt.Sprintf("%d of %s %s", len(p.Progress.In(installer.Done)), printable.Count(len(p.Progress.Nodes), "node"),
		p.Policy.Operation.Past)
	if n := len(p.Progress.In(installer.ToDo)); n > 0 {
		words += fmt.Sprintf(", %d not started", n)
	}
	if n := len(p.Progress.In(installer.Skipped)); n > 0 {
		words += fmt.Sprintf(", %d skipped", n)
	}
	failed := p.Progress.In(installer.Failed)
	if len(failed) == 0 {
		fmt.Fprintln(out, words)
		return nil
	}
	kept := "runs its previous kubelet service"
	if p.Policy.Operation != installer.Install {
		kept = "still has its agent"
	}
	verdict := fmt.Errorf("%s; failed on %s, which %s unless a message above says otherwise\n"+
		"if its pod has run, `journalctl -u kubelet` there says more; after the repair: kubectl evenkeel %s --retry %s; without --retry the "+
		"command continues with the other nodes",
		words, printable.Few(failed), kept, p.Policy.Operation.Verb, strings.Join(failed[:min(len(failed), 10)], " "))
	if p.Progress.Outcome() == installer.TimedOut {
		return &command.Exit{Code: command.ExitTimeout, Err: verdict}
	}
	return &command.Exit{Code: command.ExitHalted, Err: verdict}
}

// mostEvents is the largest number of Events that are printed for a node.
const mostEvents = 3

// showFailure prints the end of the log of a failed node's pod, and the Node's last Events.
func showFailure(ctx context.Context, c client.Client, out io.Writer, n installer.NodeProgress) {
	if n.State.Said != "" {
		fmt.Fprintf(out, "last output of its pod:\n")
		for line := range strings.Lines(n.State.Said) {
			fmt.Fprintf(out, "  %s\n", printable.Line(line))
		}
	}
	events, err := installer.Events(ctx, c, n.Name, n.Begun, mostEvents)
	if err != nil {
		fmt.Fprintf(out, "cannot read its Events: %s\n", printable.Line(describe.Brief(err)))
		return
	}
	for i, e := range events {
		if i == 0 {
			fmt.Fprintf(out, "last Events of the Node:\n")
		}
		fmt.Fprintf(out, "  %s  %s  %s\n", printable.Line(e.Type), printable.Line(e.Reason), printing.Cell(e.Message))
	}
}
