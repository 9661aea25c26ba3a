package cli

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

// work is one node, and what became of it.
type work struct {
	name     string
	standing standing
	begin    time.Time // when this command took it up, or found it taken up; zero: it has not
	label    *string   // that it had before this command gave it another; nil: it has not
	done     time.Time // since when it has looked as if it were done; zero: it does not
	late     bool      // it failed because time was up
	words    string    // what was said of it last
}

// pace takes nodes through a mission, some at a time, and none after one has failed.
type pace struct {
	c       client.Client
	m       mission
	w       wanted
	most    int // at a time
	timeout time.Duration
	retry   bool // nodes that have failed before
	nodes   []*work
	// say tells people what a node does, once.
	say func(*work)
}

// run ends when no node is left that is to be done, or one has failed and those beside it have come to their end, or with
// the error of ctx. The nodes' standings say what became of them.
func (p *pace) run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	stopped := false
	for {
		inFlight := 0
		for _, n := range p.nodes {
			if n.standing.stage != stageDoing {
				continue
			}
			if n.begin.IsZero() {
				n.begin = time.Now()
			}
			if err := p.look(ctx, n); err != nil {
				return p.end(ctx, err)
			}
			switch n.standing.stage {
			case stageFailed:
				stopped = true
			case stageDoing:
				inFlight++
			}
		}
		for _, n := range p.nodes {
			if stopped || inFlight >= p.most || n.standing.stage != stageToDo {
				continue
			}
			switch err := p.start(ctx, n); {
			case err != nil:
				return p.end(ctx, fmt.Errorf("begin with node %s: %w", n.name, err))
			case n.standing.stage == stageDoing:
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
func (p *pace) look(ctx context.Context, n *work) error {
	t, err := p.target(ctx, n.name)
	switch {
	case apierrors.IsNotFound(err):
		n.standing = standing{stage: stageSkipped, why: "the Node is gone"}
		p.tell(n)
		return nil
	case err != nil && !report.Passing(err):
		return fmt.Errorf("look at node %s: %w", n.name, err)
	case err != nil: // the API server may be on the node whose kubelet restarts
		n.standing.why = "the API server does not answer: " + err.Error()
	default:
		n.standing = p.m.judge(t, p.w)
		if n.standing.stage == stageToDo && t.waitsForItsTurn(p.w.revision) {
			n.begin = time.Time{} // its pod has come, and nothing has begun
			return nil
		}
		if n.standing.stage == stageToDo || n.standing.stage == stageSkipped {
			n.standing = standing{stage: stageSkipped, why: "somebody else has changed its label " + v1alpha1.LabelAgent + " meanwhile"}
		}
	}
	p.settle(n)
	if n.standing.stage == stageDoing && time.Since(n.begin) > p.timeout {
		n.late = true
		n.standing.stage, n.standing.why = stageFailed, fmt.Sprintf("it has not come to its end within %s: %s", p.timeout, n.standing.why)
	}
	p.tell(n)
	switch {
	case n.standing.stage == stageFailed:
		return p.giveUp(ctx, n)
	case n.standing.stage == stageDone && p.m == uninstalling:
		if err := setLabel(ctx, p.c, n.name, "", ""); err != nil {
			return fmt.Errorf("take the label %s from node %s, which is done: %w", v1alpha1.LabelAgent, n.name, err)
		}
	}
	return nil
}

// settle has a node wait that is done, until it has been for some time.
func (p *pace) settle(n *work) {
	switch {
	case n.standing.stage != stageDone:
		n.done = time.Time{}
		return
	case n.done.IsZero():
		n.done = time.Now()
	}
	if time.Since(n.done) < p.w.settle {
		n.standing = standing{stage: stageDoing, why: fmt.Sprintf("its kubelet is back, and is to be so for %s", p.w.settle)}
	}
}

// start begins with a node, unless it is not as it was.
func (p *pace) start(ctx context.Context, n *work) error {
	t, err := p.target(ctx, n.name)
	if err != nil {
		return err
	}
	if n.standing = p.m.judge(t, p.w); n.standing.stage == stageFailed && p.retry {
		n.standing = p.m.untouched(t)
	}
	if n.standing.stage == stageToDo {
		if err := p.giveTurn(ctx, n.name); err != nil {
			return err
		}
		if t.Node.Labels[v1alpha1.LabelAgent] == p.m.label {
			for _, pod := range t.pods {
				if pod.Labels["controller-revision-hash"] == p.w.revision {
					continue // it has waited for this
				}
				// The DaemonSet makes another one.
				err := p.c.Delete(ctx, &pod, client.Preconditions{UID: &pod.UID})
				if err := client.IgnoreNotFound(err); err != nil {
					return err
				}
			}
		} else {
			n.label = new(t.Node.Labels[v1alpha1.LabelAgent])
		}
		n.standing = standing{stage: stageDoing, why: "its turn has come"}
		n.begin = time.Now()
	}
	p.tell(n)
	return nil
}

// giveTurn labels a node for the mission, and lets the installer as it is now change an agent that is there.
func (p *pace) giveTurn(ctx context.Context, node string) error {
	notes := map[string]any{v1alpha1.AnnotationAgentFailed: nil, v1alpha1.AnnotationAgentTurn: nil}
	if p.m == installing {
		notes[v1alpha1.AnnotationAgentTurn] = p.w.revision
	}
	return patchNode(ctx, p.c, node, p.m.label, notes)
}

func (p *pace) tell(n *work) {
	if words := string(n.standing.stage) + n.standing.why; words != n.words {
		n.words = words
		p.say(n)
	}
}

// target reads a node and what is on it.
func (p *pace) target(ctx context.Context, name string) (target, error) {
	t := target{Pair: report.Pair{Node: &corev1.Node{}, Config: &v1alpha1.NodeConfig{}}}
	if err := p.c.Get(ctx, client.ObjectKey{Name: name}, t.Node); err != nil {
		return t, err
	}
	if p.m != installing {
		t.Config = nil // not asked for: its CRD may be gone
	} else if err := p.c.Get(ctx, client.ObjectKey{Name: name}, t.Config); apierrors.IsNotFound(err) {
		t.Config = nil
	} else if err != nil {
		return t, err
	}
	pods := &corev1.PodList{}
	err := p.c.List(ctx, pods, client.InNamespace(v1alpha1.InstallNamespace), client.MatchingLabels{"app.kubernetes.io/name": p.m.daemonSet},
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", name)})
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			t.pods = append(t.pods, pod)
		}
	}
	return t, err
}

// giveUp has nothing more done on a node that has failed, and remembers why: it is not for a pod to try again when nobody
// looks.
func (p *pace) giveUp(ctx context.Context, n *work) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	if err := setLabel(ctx, p.c, n.name, p.m.failed, n.standing.why); err != nil {
		return fmt.Errorf("node %s has failed (%s), and that cannot be noted: %w", n.name, report.OneLine(n.standing.why), err)
	}
	return nil
}

// end gives nodes on which nothing has begun the label back that they had, when the command is to end before them. The others
// come to their end without it.
func (p *pace) end(ctx context.Context, why error) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	errs := []error{why}
	for _, n := range p.nodes {
		if n.standing.stage != stageDoing || n.label == nil {
			continue
		}
		t, err := p.target(ctx, n.name)
		if err == nil && p.m.judge(t, p.w).stage == stageDoing && !t.begun() {
			if err = setLabel(ctx, p.c, n.name, *n.label, ""); err == nil {
				n.standing = standing{stage: stageToDo}
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s stays labelled: %w", n.name, err))
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

// setLabel gives a node's label a value, or takes it away, and says why it failed, or takes that away.
func setLabel(ctx context.Context, c client.Client, node, value, failed string) error {
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
