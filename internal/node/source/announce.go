package source

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Announce creates the NodeConfig of a node that takes nothing from it, so
// that the whole fleet is visible. It returns when there is one, or ctx ends.
func Announce(ctx context.Context, client *Client, node string, log *slog.Logger) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := creation{client: client, node: node, log: log, slowest: 5 * time.Minute, told: func(err error) {
		if err == nil {
			cancel()
			return
		}
		log.Debug("cannot create the NodeConfig of this node; trying again", "err", err)
	}}
	c.run(ctx, 0)
}

// creation creates a node's NodeConfig, with an empty spec.
type creation struct {
	client  *Client
	node    string
	log     *slog.Logger
	slowest time.Duration // between two attempts
	told    func(error)   // the outcome of each attempt; nil: there is one
}

// run tries after delay, and again and again until ctx ends: one that there was may be gone before anybody saw it.
func (c *creation) run(ctx context.Context, delay time.Duration) {
	retry := retries(c.slowest)
	for recovered := c.client.recovered(); pause(ctx, delay, recovered, nil); delay = retry.Step() {
		recovered = c.client.recovered()
		_, err := c.client.do(ctx, newNodeConfig(c.node), nil)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			c.log.Info("created the NodeConfig of this node")
		} else if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		c.told(err)
	}
}

// newNodeConfig is the request that creates a NodeConfig that assigns nothing. It says so with an empty spec: a CRD that
// is older than this agent does not add one, and a JSON patch could not add spec.configSource then.
func newNodeConfig(node string) request {
	return request{verb: "POST", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", body: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "NodeConfig",
		"metadata":   map[string]string{"name": node},
		"spec":       map[string]any{},
	}}
}

// creationPace keeps a NodeConfig that somebody deletes again and again from being created as often.
type creationPace struct {
	last  time.Time
	retry wait.Backoff
}

// next returns how long to wait before the object is created once more.
func (p *creationPace) next() time.Duration {
	rested := p.last.IsZero() || time.Since(p.last) > 5*time.Minute
	p.last = time.Now()
	if rested {
		p.retry = retries(time.Minute)
		return 0
	}
	return p.retry.Step()
}
