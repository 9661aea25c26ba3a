// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

var gone = State{Stage: Skipped, Why: "the Node is gone"}

// Start returns the progress before the first decision. Nodes of the control
// plane come last.
func Start(p Policy, nodes []Node) Progress {
	var first, last []NodeProgress
	for _, node := range nodes {
		n := NodeProgress{Name: node.Name, State: p.judge(node)}
		if p.Retry && n.State.Stage == Failed {
			n.State = State{Stage: ToDo}
		}

		if node.ControlPlane {
			last = append(last, n)
		} else {
			first = append(first, n)
		}
	}

	return Progress{Nodes: append(first, last...)}
}

// Decide returns the next decision. It has no I/O and no clock. The first call
// after Start needs the nodes in progress.
func Decide(p Policy, was Progress, o Observed) Decision {
	d := Decision{Next: Progress{Nodes: slices.Clone(was.Nodes), Stopped: was.Stopped}}
	nodes := map[string]Node{}
	for _, node := range o.Nodes {
		nodes[node.Name] = node
	}

	if o.Interrupted {
		d.restore(p, nodes)
		return d
	}

	d.judgeInProgress(p, nodes, o.Now)
	d.begin(p, nodes, o.Now)
	d.choose(p)

	return d
}

// judgeInProgress updates the nodes in progress that were read. The first
// failure stops the operation.
func (d *Decision) judgeInProgress(p Policy, nodes map[string]Node, now time.Time) {
	for i := range d.Next.Nodes {
		n := &d.Next.Nodes[i]
		node, read := nodes[n.Name]
		if !read || n.State.Stage != Doing {
			continue
		}
		if n.Begun.IsZero() {
			n.Begun = now
		}

		n.judgeInProgress(p, node, now)
		switch {
		case n.State.Stage == Failed:
			d.Next.Stopped = true
			d.Steps = append(d.Steps, Step{Action: MarkFailed, Node: n.Name, Why: n.State.Why})
		case n.State.Stage == Done && p.Operation == Uninstall:
			d.Steps = append(d.Steps, Step{Action: RemoveLabel, Node: n.Name})
		}
	}
}

func (n *NodeProgress) judgeInProgress(p Policy, node Node, now time.Time) {
	switch {
	case node.Gone:
		n.State = gone
		return
	case node.Unread != "": // the API server can run on the node whose kubelet restarts
		n.State.Why = "the API server does not answer: " + node.Unread
	default:
		n.State = p.judge(node)
		if n.State.Stage == ToDo && node.waitsForTurn(p.Desired.Revision) {
			n.Begun = time.Time{} // its pod waits for the node's turn
			return
		}

		if n.State.Stage == ToDo || n.State.Stage == Skipped {
			n.State = State{Stage: Skipped, Why: "its label " + v1alpha1.LabelAgent + " was changed by another client"}
		}
	}

	n.waitUntilStable(p.Desired.ReadyFor, now)
	if n.State.Stage == Doing && now.Sub(n.Begun) > p.Timeout {
		n.TimedOut = true
		n.State.Stage, n.State.Why = Failed, fmt.Sprintf("not finished within %s: %s", p.Timeout, n.State.Why)
	}
}

// waitUntilStable keeps a node in progress until it has been done for readyFor.
func (n *NodeProgress) waitUntilStable(readyFor time.Duration, now time.Time) {
	if n.State.Stage != Done {
		n.doneSince = time.Time{}
		return
	}

	if n.doneSince.IsZero() {
		n.doneSince = now
	}
	if now.Sub(n.doneSince) < readyFor {
		n.State = State{Stage: Doing, Why: fmt.Sprintf("its kubelet is back, and must stay so for %s", readyFor)}
	}
}

// begin starts the operation on the node that was read for this, unless the
// node has changed in the meantime.
func (d *Decision) begin(p Policy, nodes map[string]Node, now time.Time) {
	i, ok := d.Next.next(p)
	if !ok {
		return
	}

	n := &d.Next.Nodes[i]
	node, read := nodes[n.Name]
	if !read {
		return
	}

	switch n.State = p.judge(node); {
	case node.Gone:
		n.State = gone
	case n.State.Stage == Failed && p.Retry:
		n.State = p.judgeUntouched(node)
	}

	if n.State.Stage != ToDo {
		return
	}

	step := Step{Action: Begin, Node: n.Name}
	if node.Label != p.Operation.label {
		n.labelBefore = &node.Label
	} else {
		// Keep a waiting pod of the newest revision. The DaemonSet replaces the
		// others.
		for _, pod := range node.Pods {
			if revisionOf(&pod) != p.Desired.Revision {
				step.Pods = append(step.Pods, pod)
			}
		}
	}

	n.State = State{Stage: Doing, Why: "started"}
	n.Begun = now
	d.Steps = append(d.Steps, step)
}

// next returns the node that may begin now, if there is one.
func (p Progress) next(policy Policy) (int, bool) {
	if p.Stopped || len(p.In(Doing)) >= policy.MaxUnavailable {
		return 0, false
	}

	i := slices.IndexFunc(p.Nodes, func(n NodeProgress) bool { return n.State.Stage == ToDo })

	return i, i >= 0
}

// choose sets what to read for the next decision, and when.
func (d *Decision) choose(p Policy) {
	inProgress := d.Next.In(Doing)
	if i, ok := d.Next.next(p); ok {
		d.Verdict, d.Read = Read, []string{d.Next.Nodes[i].Name}
		return
	}

	d.Verdict, d.Read = Wait, inProgress
	if len(inProgress) == 0 {
		d.Verdict = End
	}
}

// restore ends an interrupted operation. It restores the labels of nodes on
// which no process has started. The others finish by themselves.
func (d *Decision) restore(p Policy, nodes map[string]Node) {
	d.Verdict = End
	for i := range d.Next.Nodes {
		n := &d.Next.Nodes[i]
		if n.State.Stage != Doing || n.labelBefore == nil {
			continue
		}

		node, read := nodes[n.Name]
		switch {
		case !read:
			d.Verdict, d.Read = Read, append(d.Read, n.Name)
		case node.Gone:
			n.State = gone
		case node.Unread == "" && node.Label == p.Operation.label && !node.started():
			d.Steps = append(d.Steps, Step{Action: RestoreLabel, Node: n.Name, Label: *n.labelBefore})
			n.State = State{Stage: ToDo}
		}
	}
}
