package source

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// NodeConfigSource finds what the NodeConfig of one node asks for.
type NodeConfigSource struct {
	answers
	client  *Client
	node    string
	records Records
	log     *slog.Logger
	beside  bool // another source says what is intended: configSource is not looked at

	// Under mu, besides what answers has there.
	view      view[v1alpha1.NodeConfig]
	seen      bool // the NodeConfig has been there
	createErr error
	wanted    assignment // what found is about
	found     finding
}

// NewNodeConfigSource returns a source that answers nothing until Run.
func NewNodeConfigSource(client *Client, node string, records Records, log *slog.Logger) *NodeConfigSource {
	return &NodeConfigSource{
		answers: newAnswers("NodeConfig " + node),
		client:  client, node: node, records: records, log: log,
	}
}

// Run watches the NodeConfig, and what it assigns, until ctx ends. It creates the NodeConfig where there is none.
func (s *NodeConfigSource) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := single(feed{
		client: s.client, gv: v1alpha1.GroupVersion, resource: "nodeconfigs",
		slowest: 20 * time.Second,
		fail:    func(err error) { s.see(nil, err) },
	}, s.node, func(nc *v1alpha1.NodeConfig) { s.see(nc, nil) })
	all.Go(func() { f.run(ctx) })

	var fetching, creating context.CancelFunc
	stop := func(f *context.CancelFunc) {
		if *f != nil {
			(*f)()
			*f = nil
		}
	}
	defer stop(&fetching)
	defer stop(&creating)
	pace := creationPace{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		v, again := s.view, s.again
		s.again = false
		s.mu.Unlock()
		if v.err == nil && v.synced {
			switch a := wanted(v.object); {
			case a == nil || s.beside:
				stop(&fetching)
				s.forget()
			case fetching == nil || *a != s.wanted || again:
				stop(&fetching)
				fetching = s.fetch(ctx, &all, *a)
			}
			if v.object != nil {
				stop(&creating)
			} else if creating == nil {
				creating = s.create(ctx, &all, pace.next())
			}
		}
		s.mu.Lock()
		answer, ok := s.compose()
		s.mu.Unlock()
		if ok {
			s.publish(answer)
		}
	}
}

// see takes down what was seen of the NodeConfig.
func (s *NodeConfigSource) see(object *v1alpha1.NodeConfig, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view.take(object, err)
	if object != nil {
		object.ManagedFields, object.Status = nil, v1alpha1.NodeConfigStatus{} // large, and not looked at
		s.seen, s.createErr = true, nil
	}
	signal(s.wake)
}

// wanted is what a NodeConfig assigns, nil if it refers to no ConfigMap that could be looked for.
func wanted(object *v1alpha1.NodeConfig) *assignment {
	if object == nil {
		return nil
	}
	if kind, _ := judge(object.Spec.ConfigSource); kind != trial.Assigned {
		return nil
	}
	a := &assignment{ref: *object.Spec.ConfigSource.ConfigMapRef}
	if r := object.Spec.ConfigSource.RolloutRef; r != nil {
		a.rollout, a.attempt, a.term = r.Name, r.Attempt, r.Term
	}
	return a
}

// fetch begins to resolve an assignment, and to forget whatever was found before.
func (s *NodeConfigSource) fetch(ctx context.Context, all *sync.WaitGroup, a assignment) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.wanted, s.found = a, finding{}
	s.mu.Unlock()
	f := fetch{client: s.client, records: s.records, assignment: a, tell: func(found finding) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if ctx.Err() == nil && s.wanted == a {
			s.found = found
			signal(s.wake)
		}
	}}
	all.Go(func() { f.run(ctx) })
	return cancel
}

func (s *NodeConfigSource) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted, s.found = assignment{}, finding{}
}

// create begins to create the NodeConfig, until it is seen and what is returned is called.
func (s *NodeConfigSource) create(ctx context.Context, all *sync.WaitGroup, delay time.Duration) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	c := creation{client: s.client, node: s.node, log: s.log, slowest: time.Minute, told: func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.createErr = err
		signal(s.wake)
	}}
	all.Go(func() { c.run(ctx, delay) })
	return cancel
}

// compose makes an answer of what was seen and found. It returns false as long as there is nothing to say that was
// not said before.
func (s *NodeConfigSource) compose() (Answer, bool) {
	name := "NodeConfig " + s.node
	v := s.view
	switch {
	case v.err != nil:
		return Answer{Kind: trial.Unanswered, hopeless: hopeless(v.err), Cause: explain(v.err, name,
			"apply evenkeel's RBAC, which grants the group system:nodes get, list, watch and create on nodeconfigs")}, true
	case !v.synced:
		return Answer{}, false
	case v.object == nil:
		what := "was not found"
		if s.seen {
			what = "was deleted"
		}
		cause := fmt.Sprintf("%s %s; creating it, with an empty spec", name, what)
		if s.createErr != nil {
			cause = fmt.Sprintf("%s %s, and cannot be created: %s", name, what, bound(s.createErr.Error()))
		}
		// The new object will assign nothing: that is not worth waiting for.
		return Answer{Kind: trial.Unanswered, hopeless: true, Cause: cause}, true
	}
	object := v.object
	revoked := make([]string, 0, len(object.Spec.Revoked))
	for _, uid := range object.Spec.Revoked {
		revoked = append(revoked, string(uid))
	}
	if s.beside {
		return Answer{NodeConfigUID: object.UID, Revoked: &revoked}, true
	}
	a := Answer{Config: configOf(object.Spec.ConfigSource), Generation: object.Generation, NodeConfigUID: object.UID, Revoked: &revoked}
	a.Kind, a.Cause = judge(object.Spec.ConfigSource)
	a.Config.AssignedBy = string(object.UID)
	if a.Kind == trial.Unassigned {
		a.Cause = name + " assigns nothing, so the node keeps what it has; assign a configuration, or `local: {}`"
		if t := object.Spec.TakenBack; t != nil {
			a.TakenBack = trial.RolloutRef{Name: t.Rollout, Revision: t.Revision, Attempt: t.Attempt, AssignedAt: t.AssignedAt.UTC()}
		}
	}
	if a.Kind != trial.Assigned {
		return a, true
	}
	found := s.found
	if found.kind == trial.Unanswered && found.cause == "" {
		return Answer{}, false // it is being asked for
	}
	a.Kind, a.Cause, a.Changed, a.Stale, a.hopeless = found.kind, found.cause, found.changed, found.stale, found.hopeless
	a.ConfigMap, a.Payload, a.PayloadErr, a.Notice = found.raw, found.payload, found.payloadErr, found.notice
	a.Config.Payload, a.Config.Dropin = found.payload.SHA256, found.payload.Key == payload.KeyKubeletDropin
	if a.Kind != trial.Assigned {
		return a, true
	}
	terms, err := payload.ResolveTrial(found.payload.Trial, object.Spec.Trial)
	if err != nil {
		return Answer{Kind: trial.Invalid, Cause: err.Error(), Config: a.Config, Generation: a.Generation, NodeConfigUID: a.NodeConfigUID, Revoked: a.Revoked}, true
	}
	a.Config.Asked = asked(terms)
	return a, true
}

// configOf is the configuration that a source names. Its revision is the ConfigMap's UID.
func configOf(s *v1alpha1.NodeConfigSource) trial.Config {
	if s == nil || s.ConfigMapRef == nil {
		return trial.Config{}
	}
	ref := s.ConfigMapRef
	c := trial.Config{Revision: string(ref.UID), Namespace: ref.Namespace, Name: ref.Name, UID: string(ref.UID), SHA256: ref.SHA256}
	if r := s.RolloutRef; r != nil {
		c.Rollout = trial.RolloutRef{Name: r.Name, Revision: r.Revision, Attempt: r.Attempt, AssignedAt: r.AssignedAt.UTC()}
	}
	return c
}

// asked is what is asked of a payload's trial.
func asked(t payload.TrialSettings) trial.Asked {
	a := trial.Asked{AllowPodLoss: t.AllowPodLoss}
	if t.Duration != nil {
		a.Duration = *t.Duration
	}
	if t.CrashLoopThreshold != nil {
		a.Starts = *t.CrashLoopThreshold + 1
	}
	return a
}
