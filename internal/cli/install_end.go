package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/fleet/report"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conclude says how a mission has ended, and of nodes that have failed in it why, and what can be done.
func (a *app) conclude(ctx context.Context, c client.Client, out io.Writer, p *pace) error {
	var late, now bool
	for _, n := range p.nodes {
		if n.standing.stage == stageFailed && !n.begin.IsZero() {
			now, late = true, late || n.late
			showFailure(ctx, c, out, n)
		}
	}
	words := fmt.Sprintf("%d of %s %s", count(p.nodes, stageDone), nodesWord(len(p.nodes)), p.m.done)
	if n := count(p.nodes, stageToDo); n > 0 {
		words += fmt.Sprintf(", %d not begun with", n)
	}
	if n := count(p.nodes, stageSkipped); n > 0 {
		words += fmt.Sprintf(", %d passed over", n)
	}
	failed := namesAt(p.nodes, stageFailed)
	if len(failed) == 0 {
		fmt.Fprintln(out, words)
		return nil
	}
	kept := "has the kubelet that it had before"
	if p.m != installing {
		kept = "has its agent still"
	}
	verdict := fmt.Errorf("%s; failed on %s, which %s unless it says otherwise\n"+
		"see `journalctl -u kubelet` there; when it is repaired: kubectl evenkeel %s --retry %s; without --retry the command goes on with the other nodes",
		words, report.Few(failed), kept, p.m.verb, strings.Join(failed[:min(len(failed), 10)], " "))
	if now && late {
		return &exit{ExitTimeout, verdict}
	}
	return &exit{ExitHalted, verdict}
}

// mostEvents is how many Events are shown of a node.
const mostEvents = 3

// showFailure shows what there is to see of a node that has failed.
func showFailure(ctx context.Context, c client.Client, out io.Writer, n *work) {
	if n.standing.said != "" {
		fmt.Fprintf(out, "what its pod said at its end:\n")
		for line := range strings.Lines(n.standing.said) {
			fmt.Fprintf(out, "  %s\n", report.OneLine(line))
		}
	}
	events, err := eventsOf(ctx, c, n.name, n.begin)
	if err != nil {
		fmt.Fprintf(out, "its Events cannot be read: %s\n", report.OneLine(err.Error()))
		return
	}
	for i, e := range events {
		if i == 0 {
			fmt.Fprintf(out, "the Node's last Events:\n")
		}
		fmt.Fprintf(out, "  %s  %s  %s\n", report.OneLine(e.Type), report.OneLine(e.Reason), cell(e.Message))
	}
}

// eventsOf returns the last Events of a Node since a time, the newest last.
func eventsOf(ctx context.Context, c client.Client, node string, since time.Time) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	err := c.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.MatchingFieldsSelector{
		Selector: fields.Set{"involvedObject.kind": "Node", "involvedObject.name": node}.AsSelector(),
	})
	if err != nil {
		return nil, err
	}
	at := func(e corev1.Event) time.Time {
		if e.LastTimestamp.IsZero() {
			return e.EventTime.Time
		}
		return e.LastTimestamp.Time
	}
	found := slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return at(e).Before(since.Truncate(time.Second)) })
	slices.SortStableFunc(found, func(a, b corev1.Event) int { return at(a).Compare(at(b)) })
	return found[max(0, len(found)-mostEvents):], nil
}
