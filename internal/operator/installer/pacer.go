// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// readEvery is the interval at which nodes in progress are read.
const readEvery = time.Second

// Pacer takes nodes through an operation: it reads them, asks Decide, and
// carries the steps out.
type Pacer struct {
	Client   client.Client
	Policy   Policy
	Progress Progress
	// Tell is called after the state of a node has changed.
	Tell func(NodeProgress)

	told map[string]State
}

// Run returns when the operation has ended. It returns an error if the
// operation ended early, because of ctx or an error of the API. Progress has
// the states of the nodes.
func (p *Pacer) Run(ctx context.Context) error {
	p.told = map[string]State{}
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for names := p.Progress.In(Doing); ; {
		nodes, err := p.read(ctx, names)
		if err != nil {
			return p.interrupt(ctx, err)
		}

		d := Decide(p.Policy, p.Progress, Observed{Now: time.Now(), Nodes: nodes})
		err = p.carryOut(ctx, d)
		p.tell(names)
		if err != nil {
			return p.interrupt(ctx, err)
		}

		switch names = d.Read; d.Verdict {
		case End:
			return nil
		case Wait:
			select {
			case <-ctx.Done():
				return p.interrupt(ctx, ctx.Err())
			case <-tick.C:
			}
		}
	}
}

// read reads nodes for the next decision.
func (p *Pacer) read(ctx context.Context, names []string) ([]Node, error) {
	var nodes []Node
	for _, name := range names {
		node, err := p.Policy.Operation.node(ctx, p.Client, name)
		switch inProgress := slices.Contains(p.Progress.In(Doing), name); {
		case err == nil:
		case !inProgress:
			return nil, fmt.Errorf("begin with node %s: %w", name, err)
		case !fleet.Passing(err):
			return nil, fmt.Errorf("read node %s: %w", name, err)
		default:
			node = Node{Name: name, Unread: err.Error()}
		}

		nodes = append(nodes, node)
	}

	return nodes, nil
}

// tell calls Tell for nodes whose state has changed.
func (p *Pacer) tell(names []string) {
	for _, n := range p.Progress.Nodes {
		told := State{Stage: n.State.Stage, Why: n.State.Why}
		if slices.Contains(names, n.Name) && told.Stage != ToDo && p.told[n.Name] != told {
			p.told[n.Name] = told
			p.Tell(n)
		}
	}
}

// interrupt ends the operation early.
func (p *Pacer) interrupt(ctx context.Context, why error) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	errs := []error{why}
	stays := func(name string, err error) { errs = append(errs, fmt.Errorf("node %s stays labelled: %w", name, err)) }
	d := Decide(p.Policy, p.Progress, Observed{Interrupted: true})
	var nodes []Node
	for _, name := range d.Read {
		node, err := p.Policy.Operation.node(ctx, p.Client, name)
		if err != nil {
			node = Node{Name: name, Unread: err.Error()}
			stays(name, err)
		}

		nodes = append(nodes, node)
	}

	d = Decide(p.Policy, p.Progress, Observed{Interrupted: true, Nodes: nodes})
	was := p.Progress
	p.Progress = d.Next
	for _, s := range d.Steps {
		if err := p.step(ctx, s); err != nil {
			stays(s.Node, err)
			p.Progress.keep(was, s.Node)
		}
	}

	return errors.Join(errs...)
}

// keep restores the progress of one node.
func (p *Progress) keep(was Progress, name string) {
	for i := range p.Nodes {
		if p.Nodes[i].Name == name {
			p.Nodes[i] = was.Nodes[i]
		}
	}
}

// carryOut executes the steps of a decision. A node that cannot begin keeps its
// state.
func (p *Pacer) carryOut(ctx context.Context, d Decision) error {
	was := p.Progress
	p.Progress = d.Next
	var errs []error
	for _, s := range d.Steps {
		err := p.step(ctx, s)
		if err == nil {
			continue
		}

		switch s.Action {
		case Begin:
			p.Progress.keep(was, s.Node)
			err = fmt.Errorf("begin with node %s: %w", s.Node, err)
		case MarkFailed:
			err = fmt.Errorf("node %s has failed (%s), but its label cannot be written: %w", s.Node, printable.Line(s.Why), err)
		case RemoveLabel:
			err = fmt.Errorf("remove the label %s from node %s, which is done: %w", v1alpha1.LabelAgent, s.Node, err)
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// step executes one step.
func (p *Pacer) step(ctx context.Context, s Step) error {
	notes := map[string]any{v1alpha1.AnnotationAgentFailed: nil}
	switch s.Action {
	case MarkFailed:
		ctx, cancel := afterwards(ctx)
		defer cancel()
		notes[v1alpha1.AnnotationAgentFailed] = printable.Truncate(printable.Line(s.Why), mostWords)
		return patchNode(ctx, p.Client, s.Node, p.Policy.Operation.failed, notes)
	case RemoveLabel, RestoreLabel:
		return patchNode(ctx, p.Client, s.Node, s.Label, notes)
	}

	notes[v1alpha1.AnnotationAgentTurn] = nil
	if p.Policy.Operation == Install {
		notes[v1alpha1.AnnotationAgentTurn] = p.Policy.Desired.Revision
	}
	if err := patchNode(ctx, p.Client, s.Node, p.Policy.Operation.label, notes); err != nil {
		return err
	}

	for _, pod := range s.Pods {
		if err := client.IgnoreNotFound(p.Client.Delete(ctx, &pod, client.Preconditions{UID: &pod.UID})); err != nil {
			return err
		}
	}

	return nil
}

// afterwards returns a context for requests that follow an interruption.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}

// mostWords limits the failure annotation of a Node, in bytes.
const mostWords = 500

// patchNode sets a node's label LabelAgent, or removes it if the value is
// empty. It removes annotations that are nil.
func patchNode(ctx context.Context, c client.Client, node, value string, annotations map[string]any) error {
	label := &value
	if value == "" {
		label = nil
	}

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]any{v1alpha1.LabelAgent: label}, "annotations": annotations,
	}})
	if err != nil {
		return err
	}

	object := &corev1.Node{}
	object.Name = node

	return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}
