package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

const (
	fieldManager = client.FieldOwner("evenkeel-controller")
	// writeTimeout is how long a write may take. The API server is told, so that it takes effect by then or never; a
	// leader that has lost its lease stops this long before another one begins.
	writeTimeout = 5 * time.Second
	// slice is how long moves are made before it is decided anew: a stop must not wait for thousands of them.
	slice = 2 * time.Second
)

// errConflict is a NodeConfig that has changed since it was read.
var errConflict = errors.New("it has changed meanwhile")

// operation is one operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patchSpec is the patch that replaces a NodeConfig's spec if nobody else has changed it. That an agent writes its status
// at that time does not matter.
func patchSpec(nc *v1alpha1.NodeConfig, spec v1alpha1.NodeConfigSpec) ([]byte, error) {
	return json.Marshal([]operation{
		{"test", "/metadata/uid", nc.UID},
		{"test", "/metadata/generation", nc.Generation},
		{"add", "/spec", spec},
	})
}

// move makes one move of a node as it was when that was decided. asked is what is asked of the node's trial. The error says
// why it was not made, or that nobody knows whether it was.
func (c *Controller) move(ctx context.Context, planned *rollout.Node, m rollout.Move, asked *v1alpha1.TrialTerms) error {
	name := planned.Name
	c.fleet.mu.Lock()
	var known *v1alpha1.NodeConfig
	ready := false
	if of := c.fleet.nodes[name]; of != nil {
		known, ready = of.config, of.seen.Ready
	}
	c.fleet.mu.Unlock()
	switch {
	case known == nil:
		return fmt.Errorf("NodeConfig %s is gone", name)
	case planned.Ready && !ready && (m.Kind == rollout.Assign || m.Kind == rollout.Join):
		// Given the revision now it would look as if it had gone NotReady because of that.
		return fmt.Errorf("node %s went NotReady: %w", name, errConflict)
	}
	if c.election != nil {
		if _, err := c.election.leads(); err != nil {
			return err
		}
	}
	spec := specOf(planned, m)
	spec.Trial = asked
	if c.termless.Load() && spec.ConfigSource != nil && spec.ConfigSource.RolloutRef != nil {
		spec.ConfigSource.RolloutRef.Term = 0
	}
	began := c.fleet.now()
	got, err := c.patch(ctx, known, spec)
	if unknownField(err) && spec.TakenBack != nil { // an older CRD cannot say it; that must not keep anything from being taken back
		spec.TakenBack = nil
		got, err = c.patch(ctx, known, spec)
	}
	switch {
	case err == nil:
		c.metrics.wrote("nodeconfig", "ok")
		policy.StripNodeConfig(got)
		c.fleet.setConfig(got)
		return nil
	case !refused(err):
		c.metrics.wrote("nodeconfig", "unknown")
		c.fleet.doubt(name, began.Add(writeTimeout+time.Second))
		return fmt.Errorf("NodeConfig %s: nobody knows whether the write took effect: %w", name, err)
	case unknownField(err) && strings.Contains(err.Error(), "rolloutRef.term"): // and so do all that are written at this time
		c.metrics.wrote("nodeconfig", "error")
		if c.termless.Swap(true) {
			return fmt.Errorf("NodeConfig %s cannot name the term: %w", name, errConflict)
		}
		c.log.Warn("assignments do not name this leader's term: the CRD of NodeConfigs is older than this controller: kubectl apply -k config/default, and restart the controller then")
		return fmt.Errorf("NodeConfig %s cannot name the term: %w", name, errConflict)
	case apierrors.IsForbidden(err), unknownField(err):
		c.metrics.wrote("nodeconfig", "error")
		return advise("patch nodeconfigs.evenkeel.dev/v1alpha1", err)
	}
	c.metrics.wrote("nodeconfig", "conflict")
	if again := c.reread(ctx, name); again != nil {
		return again
	}
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	if now := c.fleet.nodes[name]; now == nil || now.config == nil || now.config.UID != known.UID || now.config.Generation != known.Generation {
		return fmt.Errorf("NodeConfig %s: %w", name, errConflict)
	}
	return fmt.Errorf("write the spec of NodeConfig %s: %w", name, err)
}

// patch writes the spec of a NodeConfig that was known as that, and returns what is stored then.
func (c *Controller) patch(ctx context.Context, known *v1alpha1.NodeConfig, spec v1alpha1.NodeConfigSpec) (*v1alpha1.NodeConfig, error) {
	data, err := patchSpec(known, spec)
	if err != nil {
		return nil, fmt.Errorf("encode the spec of NodeConfig %s: %w", known.Name, err)
	}
	got := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: known.Name}}
	return got, c.client.Patch(ctx, got, client.RawPatch(types.JSONPatchType, data), fieldManager)
}

// observe records what was observed of nodes, before anything is decided on it: the next leader goes on from there. Marks
// of nodes whose NodeConfig is gone, or another one, are left out.
func (c *Controller) observe(ctx context.Context, marks []rollout.NewMark) error {
	return c.each(ctx, len(marks), time.Time{}, func(ctx context.Context, i int) error {
		name := c.nodes[marks[i].Node].Name
		c.fleet.mu.Lock()
		var known *v1alpha1.NodeConfig
		if of := c.fleet.nodes[name]; of != nil {
			known = of.config
		}
		c.fleet.mu.Unlock()
		if known == nil {
			return nil
		}
		var value any // nil removes it
		if m := marks[i].Mark; m.Rollout != "" {
			text, err := policy.MarkText(m)
			if err != nil {
				return err
			}
			value = text
		}
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": known.UID, "annotations": map[string]any{v1alpha1.AnnotationObserved: value},
		}})
		if err != nil {
			return fmt.Errorf("encode what was observed of NodeConfig %s: %w", name, err)
		}
		got := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err = c.client.Patch(ctx, got, client.RawPatch(types.MergePatchType, data), fieldManager)
		switch {
		case err == nil:
			c.metrics.wrote("nodeconfig", "ok")
			policy.StripNodeConfig(got)
			c.fleet.setConfig(got)
			return nil
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			c.metrics.wrote("nodeconfig", "conflict")
			return c.reread(ctx, name)
		}
		c.metrics.wrote("nodeconfig", "error")
		return advise("patch nodeconfigs.evenkeel.dev/v1alpha1", err)
	})
}

// refused tells a write that the API server has certainly not carried out from one that it may have.
func refused(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		code := status.Status().Code
		return code >= 400 && code < 500 && code != http.StatusRequestTimeout
	}
	return utilnet.IsConnectionRefused(err)
}

// doubt says that a write to a NodeConfig may yet take effect.
func (f *fleet) doubt(name string, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.nodes[name]; m != nil {
		m.unsure = until
	}
}

// reread reads a NodeConfig from the API server itself.
func (c *Controller) reread(ctx context.Context, name string) error {
	got := &v1alpha1.NodeConfig{}
	err := c.client.Get(ctx, types.NamespacedName{Name: name}, got)
	switch {
	case err == nil:
		policy.StripNodeConfig(got)
		c.fleet.setConfig(got)
		return nil
	case apierrors.IsNotFound(err):
		c.fleet.forgetConfig(name)
		return nil
	}
	return fmt.Errorf("read NodeConfig %s: %w", name, err)
}

func (f *fleet) forgetConfig(name string) {
	f.mu.Lock()
	var uid types.UID
	if m := f.nodes[name]; m != nil && m.config != nil {
		uid = m.config.UID
	}
	f.mu.Unlock()
	f.deleteConfig(name, uid)
}

// settle reads again what nobody is sure of. It returns when it can be sure of all the nodes of a rollout; zero: it is.
func (c *Controller) settle(ctx context.Context, r *rolling) (time.Time, error) {
	type doubtful struct {
		name       string
		until      time.Time
		generation int64
	}
	var all []doubtful
	c.fleet.mu.Lock()
	for name, m := range r.members {
		if m.unsure.IsZero() {
			continue
		}
		d := doubtful{name: name, until: m.unsure}
		if m.config != nil {
			d.generation = m.config.Generation
		}
		all = append(all, d)
	}
	c.fleet.mu.Unlock()
	var later time.Time
	for _, d := range all {
		read := c.fleet.now()
		if err := c.reread(ctx, d.name); err != nil {
			return time.Time{}, err
		}
		c.fleet.mu.Lock()
		m := c.fleet.nodes[d.name]
		switch {
		case m == nil || m.config == nil || m.config.Generation > d.generation || !read.Before(d.until):
			if m != nil {
				m.unsure = time.Time{}
			}
		case later.Before(d.until):
			later = d.until
		}
		c.fleet.mu.Unlock()
	}
	return later, nil
}

// ensure creates the NodeConfigs that nodes of a rollout lack, empty.
func (c *Controller) ensure(ctx context.Context, r *rolling) error {
	var missing []string
	c.fleet.mu.Lock()
	for name, m := range r.members {
		if m.config == nil && m.holder == r.name {
			missing = append(missing, name)
		}
	}
	c.fleet.mu.Unlock()
	return c.each(ctx, len(missing), time.Time{}, func(ctx context.Context, i int) error {
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: missing[i]}}
		err := c.client.Create(ctx, nc, fieldManager)
		switch {
		case err == nil:
			c.metrics.wrote("nodeconfig", "ok")
			policy.StripNodeConfig(nc)
			c.fleet.setConfig(nc)
			return nil
		case apierrors.IsAlreadyExists(err):
			return c.reread(ctx, missing[i])
		}
		c.metrics.wrote("nodeconfig", "error")
		return advise("create nodeconfigs.evenkeel.dev/v1alpha1", err)
	})
}

// each does something n times, in order as it is begun, some at a time, until the deadline if there is one. What fails
// does not keep the rest from being done, and one of the errors is returned.
func (c *Controller) each(ctx context.Context, n int, deadline time.Time, do func(ctx context.Context, i int) error) error {
	next := make(chan int)
	var all sync.WaitGroup
	var mu sync.Mutex
	var first error
	for range min(n, c.writers) {
		all.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil || !deadline.IsZero() && time.Now().After(deadline) {
			break
		}
		next <- i
	}
	close(next)
	all.Wait()
	return first
}
