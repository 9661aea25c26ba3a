package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// pair is two nodes, and a rollout for them that a person steers with `kubectl evenkeel`.
type pair struct {
	t     *testing.T
	nodes [2]*node
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t}
	for i, name := range []string{"pair-a", "pair-b"} {
		p.nodes[i] = newNode(t, name, "--config-trial-duration=2s", "--crash-loop-threshold=0")
	}
	p.up()
	return p
}

// up starts the agents and a controller.
func (p *pair) up() {
	p.t.Helper()
	for _, n := range p.nodes {
		n.Kubelet = append(n.Kubelet, "--node-labels=pool=pair")
		n.up()
	}
	p.nodes[0].startController()
}

// startController starts a controller, which is stopped when the test ends.
func (n *node) startController() {
	n.t.Helper()
	controller, err := n.Controller(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := controller.Stop(time.Minute); err != nil {
			n.t.Error(err)
		}
		if !n.t.Failed() {
			return
		}
		if log, err := os.ReadFile(controller.Log); err != nil {
			n.t.Error(err)
		} else {
			n.t.Logf("the controller said:\n%s", log)
		}
	})
}

// evenkeel runs `kubectl evenkeel`, which must exit with code and say all the words.
func (p *pair) evenkeel(code int, args []string, words ...string) {
	p.t.Helper()
	var out bytes.Buffer
	got, err := p.nodes[0].Evenkeel(p.t.Context(), &out, args...)
	if err != nil {
		p.t.Fatal(err)
	}
	if got != code {
		p.t.Fatalf("%q: exit code %d, want %d:\n%s", args, got, code, &out)
	}
	for _, w := range words {
		if !strings.Contains(out.String(), w) {
			p.t.Errorf("%q does not say %q but:\n%s", args, w, &out)
		}
	}
}

// push pushes fields as a drop-in.
func (p *pair) push(fields map[string]any, flags ...string) {
	p.t.Helper()
	data, err := yaml.Marshal(fields)
	if err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(p.t.TempDir(), "fields.yaml")
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	if err := os.WriteFile(file, append([]byte(head), data...), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.evenkeel(0, append([]string{"push", "pair", "-f", file, "--drop-in", "--yes"}, flags...))
}

// ends follows the rollout to its end.
func (p *pair) ends(code int, words ...string) {
	p.t.Helper()
	p.endsWithin(time.Minute, code, words...)
}

func (p *pair) endsWithin(limit time.Duration, code int, words ...string) {
	p.t.Helper()
	p.evenkeel(code, []string{"rollout", "status", "pair", "-w", "--timeout=" + limit.String()}, words...)
}

// config is a node's NodeConfig.
func (p *pair) config(n *node) *v1alpha1.NodeConfig {
	p.t.Helper()
	nc, err := n.Get(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return nc
}

// haveMaxPods requires these values in the /configz of both kubelets.
func (p *pair) haveMaxPods(want float64) {
	p.t.Helper()
	for _, n := range p.nodes {
		n.eventually("the kubelet's own /configz has it", func(ctx context.Context) error {
			config, err := n.KubeletConfigz(ctx)
			if err == nil && config["maxPods"] != want {
				err = fmt.Errorf("maxPods of %s is %v", n.Node.Name(), config["maxPods"])
			}
			return err
		})
	}
}

// canary returns the node that has a revision, and the other one.
func (p *pair) canary(revision int64) (canary, other *node) {
	p.t.Helper()
	has := func(n *node) bool {
		s := p.config(n).Spec.ConfigSource
		return s != nil && s.RolloutRef != nil && s.RolloutRef.Revision == revision
	}
	switch a, b := p.nodes[0], p.nodes[1]; {
	case has(a) && !has(b):
		return a, b
	case has(b) && !has(a):
		return b, a
	}
	p.t.Fatalf("not exactly one node has revision %d", revision)
	return nil, nil
}

// stopsAtTheCanary pushes a configuration that must not get further than one node, and undoes it. reason is why it fails
// there.
func (p *pair) stopsAtTheCanary(revision int64, good types.UID, bad map[string]any, reason string) {
	p.t.Helper()
	steady := map[*node]*steady{}
	before := map[*node]*v1alpha1.NodeConfig{}
	for _, n := range p.nodes {
		steady[n], before[n] = n.steady(), p.config(n)
	}
	p.push(bad)
	p.ends(2, "Halted", reason)
	canary, other := p.canary(revision)
	p.evenkeel(2, []string{"rollout", "status", "pair"}, "Halted", canary.Node.Name(), reason)
	p.evenkeel(0, []string{"nodes", "--problems"}, canary.Node.Name(), reason)
	uid := p.config(canary).Spec.ConfigSource.ConfigMapRef.UID
	canary.eventually("the canary runs what was good", func(ctx context.Context) error {
		if err := canary.Healthy(ctx); err != nil {
			return err
		}
		nc, err := canary.Get(ctx)
		if err == nil && (nc.Status.Active == nil || nc.Status.Active.UID != good) {
			err = fmt.Errorf("it runs %+v", nc.Status.Active)
		}
		return err
	})
	if reason == v1alpha1.ReasonValidationFailed {
		steady[canary].end(p.t)
	}

	p.evenkeel(0, []string{"rollout", "undo", "pair"})
	p.ends(0, "Complete")
	canary.eventually("the canary's spec is what it was", func(ctx context.Context) error {
		nc, err := canary.Get(ctx)
		if err != nil {
			return err
		}
		if s := nc.Spec.ConfigSource; s.ConfigMapRef.UID != good || s.RolloutRef.Revision != revision+1 {
			return fmt.Errorf("it has %+v %+v", *s.ConfigMapRef, *s.RolloutRef)
		}
		if !slices.Contains(nc.Spec.Revoked, uid) {
			return errors.New("it may yet fall back to the bad one")
		}
		return nil
	})
	steady[other].end(p.t)
	if was, is := before[other], p.config(other); is.Generation != was.Generation || is.UID != was.UID {
		p.t.Errorf("the other node was written to: %+v, was %+v", is.Spec, was.Spec)
	}
	p.haveMaxPods(121)
}

func TestARolloutOverTwoRealKubeletsStopsAtItsCanary(t *testing.T) {
	p := newPair(t)
	p.push(map[string]any{"maxPods": 121}, "--selector=pool=pair", "--steps=1,100%", "--max-unavailable=1")
	p.ends(0, "2/2")
	p.haveMaxPods(121)
	good := p.config(p.nodes[0]).Spec.ConfigSource.ConfigMapRef.UID
	for _, n := range p.nodes {
		if l := p.config(n).Status.LastKnownGood; l == nil || l.UID != good {
			t.Errorf("%s: last-known-good is %+v", n.Node.Name(), l)
		}
	}
	p.stopsAtTheCanary(2, good, map[string]any{"maxPods": 122, "imageGCHighThresholdPercent": 101}, v1alpha1.ReasonValidationFailed)
	p.stopsAtTheCanary(4, good, crashesAtItsStart, v1alpha1.ReasonCrashLooped)
}
