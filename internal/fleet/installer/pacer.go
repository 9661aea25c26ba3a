package installer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/report"
)

// lookEvery is how often a node that is waited for is looked at.
const lookEvery = time.Second

// Progress is one node, and what became of it.
type Progress struct {
	Name     string
	State    State
	Begun    time.Time // when this command took it up, or found it taken up; zero: it has not
	TimedOut bool
	label    *string   // that it had before this command gave it another; nil: it has not
	done     time.Time // since when it has looked as if it were done; zero: it does not
	words    string    // what was said of it last
}

// Pacer takes nodes through an operation, some at a time, and none after one has failed.
type Pacer struct {
	Client         client.Client
	Operation      Operation
	Desired        Desired
	MaxUnavailable int // at a time
	Timeout        time.Duration
	Retry          bool // nodes that have failed before
	Nodes          []*Progress
	// Say tells people what a node does, once.
	Say func(*Progress)
}

// Run ends when no node is left that is to be done, or one has failed and those beside it have come to their end, or with
// the error of ctx. The nodes' standings say what became of them.
func (p *Pacer) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	stopped := false
	for {
		inFlight := 0
		for _, n := range p.Nodes {
			if n.State.Stage != Doing {
				continue
			}
			if n.Begun.IsZero() {
				n.Begun = time.Now()
			}
			if err := p.look(ctx, n); err != nil {
				return p.end(ctx, err)
			}
			switch n.State.Stage {
			case Failed:
				stopped = true
			case Doing:
				inFlight++
			}
		}
		for _, n := range p.Nodes {
			if stopped || inFlight >= p.MaxUnavailable || n.State.Stage != ToDo {
				continue
			}
			switch err := p.start(ctx, n); {
			case err != nil:
				return p.end(ctx, fmt.Errorf("begin with node %s: %w", n.Name, err))
			case n.State.Stage == Doing:
				inFlight++
			}
		}
		if inFlight == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return p.end(ctx, ctx.Err())
		case <-tick.C:
		}
	}
}

// look looks at a node that is waited for, and ends what has come to its end.
func (p *Pacer) look(ctx context.Context, n *Progress) error {
	t, err := p.target(ctx, n.Name)
	switch {
	case apierrors.IsNotFound(err):
		n.State = State{Stage: Skipped, Why: "the Node is gone"}
		p.tell(n)
		return nil
	case err != nil && !report.Passing(err):
		return fmt.Errorf("look at node %s: %w", n.Name, err)
	case err != nil: // the API server may be on the node whose kubelet restarts
		n.State.Why = "the API server does not answer: " + err.Error()
	default:
		n.State = p.Operation.judge(t, p.Desired)
		if n.State.Stage == ToDo && t.waitsForItsTurn(p.Desired.Revision) {
			n.Begun = time.Time{} // its pod has come, and nothing has begun
			return nil
		}
		if n.State.Stage == ToDo || n.State.Stage == Skipped {
			n.State = State{Stage: Skipped, Why: "somebody else has changed its label " + v1alpha1.LabelAgent + " meanwhile"}
		}
	}
	p.settle(n)
	if n.State.Stage == Doing && time.Since(n.Begun) > p.Timeout {
		n.TimedOut = true
		n.State.Stage, n.State.Why = Failed, fmt.Sprintf("it has not come to its end within %s: %s", p.Timeout, n.State.Why)
	}
	p.tell(n)
	switch {
	case n.State.Stage == Failed:
		return p.giveUp(ctx, n)
	case n.State.Stage == Done && p.Operation == Uninstall:
		if err := SetLabel(ctx, p.Client, n.Name, "", ""); err != nil {
			return fmt.Errorf("take the label %s from node %s, which is done: %w", v1alpha1.LabelAgent, n.Name, err)
		}
	}
	return nil
}

// settle has a node wait that is done, until it has been for some time.
func (p *Pacer) settle(n *Progress) {
	switch {
	case n.State.Stage != Done:
		n.done = time.Time{}
		return
	case n.done.IsZero():
		n.done = time.Now()
	}
	if time.Since(n.done) < p.Desired.ReadyFor {
		n.State = State{Stage: Doing, Why: fmt.Sprintf("its kubelet is back, and is to be so for %s", p.Desired.ReadyFor)}
	}
}

// start begins with a node, unless it is not as it was.
func (p *Pacer) start(ctx context.Context, n *Progress) error {
	t, err := p.target(ctx, n.Name)
	if err != nil {
		return err
	}
	if n.State = p.Operation.judge(t, p.Desired); n.State.Stage == Failed && p.Retry {
		n.State = p.Operation.untouched(t)
	}
	if n.State.Stage == ToDo {
		if err := p.giveTurn(ctx, n.Name); err != nil {
			return err
		}
		if t.Node.Labels[v1alpha1.LabelAgent] == p.Operation.label {
			for _, pod := range t.pods {
				if pod.Labels["controller-revision-hash"] == p.Desired.Revision {
					continue // it has waited for this
				}
				// The DaemonSet makes another one.
				err := p.Client.Delete(ctx, &pod, client.Preconditions{UID: &pod.UID})
				if err := client.IgnoreNotFound(err); err != nil {
					return err
				}
			}
		} else {
			n.label = new(t.Node.Labels[v1alpha1.LabelAgent])
		}
		n.State = State{Stage: Doing, Why: "its turn has come"}
		n.Begun = time.Now()
	}
	p.tell(n)
	return nil
}

// giveTurn labels a node for the operation, and lets the installer as it is now change an agent that is there.
func (p *Pacer) giveTurn(ctx context.Context, node string) error {
	notes := map[string]any{v1alpha1.AnnotationAgentFailed: nil, v1alpha1.AnnotationAgentTurn: nil}
	if p.Operation == Install {
		notes[v1alpha1.AnnotationAgentTurn] = p.Desired.Revision
	}
	return patchNode(ctx, p.Client, node, p.Operation.label, notes)
}

func (p *Pacer) tell(n *Progress) {
	if words := string(n.State.Stage) + n.State.Why; words != n.words {
		n.words = words
		p.Say(n)
	}
}

// target reads a node and what is on it.
func (p *Pacer) target(ctx context.Context, name string) (target, error) {
	t := target{Pair: report.Pair{Node: &corev1.Node{}, Config: &v1alpha1.NodeConfig{}}}
	if err := p.Client.Get(ctx, client.ObjectKey{Name: name}, t.Node); err != nil {
		return t, err
	}
	if p.Operation != Install {
		t.Config = nil // not asked for: its CRD may be gone
	} else if err := p.Client.Get(ctx, client.ObjectKey{Name: name}, t.Config); apierrors.IsNotFound(err) {
		t.Config = nil
	} else if err != nil {
		return t, err
	}
	pods := &corev1.PodList{}
	err := p.Client.List(ctx, pods, client.InNamespace(v1alpha1.InstallNamespace), client.MatchingLabels{"app.kubernetes.io/name": p.Operation.DaemonSet},
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", name)})
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			t.pods = append(t.pods, pod)
		}
	}
	return t, err
}

// giveUp has nothing more done on a node that has failed, and remembers Why: it is not for a pod to try again when nobody
// looks.
func (p *Pacer) giveUp(ctx context.Context, n *Progress) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	if err := SetLabel(ctx, p.Client, n.Name, p.Operation.failed, n.State.Why); err != nil {
		return fmt.Errorf("node %s has failed (%s), and that cannot be noted: %w", n.Name, report.OneLine(n.State.Why), err)
	}
	return nil
}

// end gives nodes on which nothing has begun the label back that they had, when the command is to end before them. The others
// come to their end without it.
func (p *Pacer) end(ctx context.Context, why error) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	errs := []error{why}
	for _, n := range p.Nodes {
		if n.State.Stage != Doing || n.label == nil {
			continue
		}
		t, err := p.target(ctx, n.Name)
		if err == nil && p.Operation.judge(t, p.Desired).Stage == Doing && !t.begun() {
			if err = SetLabel(ctx, p.Client, n.Name, *n.label, ""); err == nil {
				n.State = State{Stage: ToDo}
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s stays labelled: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// afterwards is a little time for what must be done though the command was interrupted.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}

// mostWords is how much of why it failed a Node keeps.
const mostWords = 500

// SetLabel gives a node's label a value, or takes it away, and says why it failed, or takes that away.
func SetLabel(ctx context.Context, c client.Client, node, value, failed string) error {
	if failed = report.OneLine(failed); len(failed) > mostWords {
		failed = strings.ToValidUTF8(failed[:mostWords], "") + "..."
	}
	return patchNode(ctx, c, node, value, map[string]any{v1alpha1.AnnotationAgentFailed: orNone(failed)})
}

// patchNode gives a node's label a value, or takes it away if that is empty, and the same for annotations that are nil.
func patchNode(ctx context.Context, c client.Client, node, value string, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]any{v1alpha1.LabelAgent: orNone(value)}, "annotations": annotations,
	}})
	if err != nil {
		return err
	}
	object := &corev1.Node{}
	object.Name = node
	return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}

func orNone(s string) any {
	if s == "" {
		return nil
	}
	return s
}
