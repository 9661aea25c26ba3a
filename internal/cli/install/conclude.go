package install

import (
	"context"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet/installer"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// conclude prints how an operation ended, why nodes failed in it, and what to do next.
func (a *app) conclude(ctx context.Context, c client.Client, out io.Writer, p *installer.Pacer) error {
	for _, n := range p.Progress.Nodes {
		if n.State.Stage == installer.Failed && !n.Begun.IsZero() {
			showFailure(ctx, c, out, n)
		}
	}
	words := fmt.Sprintf("%d of %s %s", len(p.Progress.In(installer.Done)), nodesWord(len(p.Progress.Nodes)), p.Policy.Operation.Past)
	if n := len(p.Progress.In(installer.ToDo)); n > 0 {
		words += fmt.Sprintf(", %d not begun with", n)
	}
	if n := len(p.Progress.In(installer.Skipped)); n > 0 {
		words += fmt.Sprintf(", %d passed over", n)
	}
	failed := p.Progress.In(installer.Failed)
	if len(failed) == 0 {
		fmt.Fprintln(out, words)
		return nil
	}
	kept := "has the kubelet that it had before"
	if p.Policy.Operation != installer.Install {
		kept = "has its agent still"
	}
	verdict := fmt.Errorf("%s; failed on %s, which %s unless it says otherwise\n"+
		"see `journalctl -u kubelet` there; when it is repaired: kubectl evenkeel %s --retry %s; without --retry the command goes on with the other nodes",
		words, printable.Few(failed), kept, p.Policy.Operation.Verb, strings.Join(failed[:min(len(failed), 10)], " "))
	if p.Progress.Outcome() == installer.TimedOut {
		return &command.Exit{Code: command.ExitTimeout, Err: verdict}
	}
	return &command.Exit{Code: command.ExitHalted, Err: verdict}
}

// mostEvents is how many Events are shown of a node.
const mostEvents = 3

// showFailure prints the last words of a failed node's pod, and the Node's last Events.
func showFailure(ctx context.Context, c client.Client, out io.Writer, n installer.NodeProgress) {
	if n.State.Said != "" {
		fmt.Fprintf(out, "what its pod said at its end:\n")
		for line := range strings.Lines(n.State.Said) {
			fmt.Fprintf(out, "  %s\n", printable.Line(line))
		}
	}
	events, err := installer.Events(ctx, c, n.Name, n.Begun, mostEvents)
	if err != nil {
		fmt.Fprintf(out, "its Events cannot be read: %s\n", printable.Line(err.Error()))
		return
	}
	for i, e := range events {
		if i == 0 {
			fmt.Fprintf(out, "the Node's last Events:\n")
		}
		fmt.Fprintf(out, "  %s  %s  %s\n", printable.Line(e.Type), printable.Line(e.Reason), printing.Cell(e.Message))
	}
}
