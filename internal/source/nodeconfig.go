package source

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/trial"
)

// Answer is what is known of the intended configuration.
type Answer struct {
	Kind  trial.IntentKind
	Cause string // of Unanswered and Invalid: the object, what is wrong, and what to do
	// Config is what is assigned, without a Checkpoint: of Assigned, and of the others as far as it is known.
	Config trial.Config
	// Changed says that the cause of Invalid is an object that does not have the payload on record under its UID.
	Changed bool
	// ConfigMap is the whole object as JSON, of Assigned if it had to be downloaded: the node has no checkpoint yet.
	ConfigMap []byte
	// Payload is what to run, of Assigned; unless PayloadErr, a *payload.Error, says that it cannot even be decoded:
	// the source is correct all the same, and the configuration is to be rejected.
	Payload    payload.Payload
	PayloadErr error
	// Notice is worth saying and changes nothing: the object was edited, deleted or replaced.
	Notice string
	// Generation and NodeConfigUID are those of the NodeConfig, zero if there is none or it is not known.
	Generation    int64
	NodeConfigUID types.UID
	// Revoked is nil if it is not known.
	Revoked *[]string

	hopeless bool // no better answer will come within seconds
}

// NodeConfigSource finds what the NodeConfig of one node asks for.
type NodeConfigSource struct {
	client  *Client
	node    string
	records Records
	log     *slog.Logger
	wake    chan struct{}
	changed chan struct{}

	mu        sync.Mutex
	view      view
	createErr error
	ref       v1alpha1.ConfigMapReference // what found is about
	found     finding
	answer    Answer
	spoken    bool          // answer was published
	again     bool          // what is assigned is to be resolved anew
	firm      chan struct{} // closed at the first answer that is worth waiting for
}

// view is the NodeConfig as it was last seen.
type view struct {
	synced bool // it is known, or known not to be there
	object *v1alpha1.NodeConfig
	seen   bool // it has been there
	err    error
}

// NewNodeConfigSource returns a source that answers nothing until Run.
func NewNodeConfigSource(client *Client, node string, records Records, log *slog.Logger) *NodeConfigSource {
	return &NodeConfigSource{
		client: client, node: node, records: records, log: log,
		wake:    make(chan struct{}, 1),
		changed: make(chan struct{}, 1),
		firm:    make(chan struct{}),
		answer:  Answer{Kind: trial.Unanswered, Cause: "NodeConfig " + node + " cannot be read: no answer from the API server yet"},
	}
}

// Current returns the newest answer.
func (s *NodeConfigSource) Current() Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer
}

// Changed returns the channel that is sent to, once for any number of changes, when Current has a new answer. It has
// one reader.
func (s *NodeConfigSource) Changed() <-chan struct{} { return s.changed }

// First waits for the first answer, until ctx ends: then, or when it is clear that none is to be had soon, because
// the connection is refused, there is no kubeconfig or no NodeConfig, the answer is Unanswered.
func (s *NodeConfigSource) First(ctx context.Context) Answer {
	select {
	case <-s.firm:
	case <-ctx.Done():
	}
	return s.Current()
}

// Again has what is assigned resolved anew: its checkpoint, which was good when it was looked at, cannot be used.
func (s *NodeConfigSource) Again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again = true
	s.signal()
}

// Run watches the NodeConfig, and what it assigns, until ctx ends. It creates the NodeConfig where there is none.
func (s *NodeConfigSource) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := feed{
		client: s.client, gv: v1alpha1.GroupVersion, resource: "nodeconfigs",
		fields:  fields.OneTermEqualSelector("metadata.name", s.node).String(),
		slowest: 20 * time.Second,
		replace: func(objects []runtime.Object) {
			object, _ := single[*v1alpha1.NodeConfig](objects)
			s.see(object, nil)
		},
		apply: func(change watch.EventType, object runtime.Object) {
			nc, ok := object.(*v1alpha1.NodeConfig)
			if !ok || change == watch.Deleted {
				nc = nil
			}
			s.see(nc, nil)
		},
		fail: func(err error) { s.see(nil, err) },
	}
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
			switch ref := wanted(v.object); {
			case ref == nil:
				stop(&fetching)
				s.forget()
			case fetching == nil || *ref != s.ref || again:
				stop(&fetching)
				fetching = s.fetch(ctx, &all, *ref)
			}
			if v.object != nil {
				stop(&creating)
			} else if creating == nil {
				createCtx, cancel := context.WithCancel(ctx)
				delay := pace.next()
				all.Go(func() { s.create(createCtx, delay) })
				creating = cancel
			}
		}
		s.publish()
	}
}

// see takes down what was seen of the NodeConfig.
func (s *NodeConfigSource) see(object *v1alpha1.NodeConfig, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view.err = err
	if err == nil {
		s.view = view{synced: true, object: object, seen: s.view.seen || object != nil}
		if object != nil {
			object.ManagedFields, object.Status = nil, v1alpha1.NodeConfigStatus{} // large, and not looked at
			s.createErr = nil
		}
	}
	s.signal()
}

func (s *NodeConfigSource) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// wanted is the ConfigMap that a NodeConfig refers to, nil if it refers to none that could be looked for.
func wanted(object *v1alpha1.NodeConfig) *v1alpha1.ConfigMapReference {
	if object == nil {
		return nil
	}
	if kind, _ := judge(object.Generation, object.Spec.ConfigSource); kind != trial.Assigned {
		return nil
	}
	return object.Spec.ConfigSource.ConfigMapRef
}

// fetch begins to resolve ref, and to forget whatever was found before.
func (s *NodeConfigSource) fetch(ctx context.Context, all *sync.WaitGroup, ref v1alpha1.ConfigMapReference) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.ref, s.found = ref, finding{}
	s.mu.Unlock()
	f := fetch{client: s.client, records: s.records, ref: ref, tell: func(found finding) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if ctx.Err() == nil && s.ref == ref {
			s.found = found
			s.signal()
		}
	}}
	all.Go(func() { f.run(ctx) })
	return cancel
}

func (s *NodeConfigSource) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ref, s.found = v1alpha1.ConfigMapReference{}, finding{}
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

// create creates the node's NodeConfig, with an empty spec, after delay and until it is seen, that is, ctx ends.
func (s *NodeConfigSource) create(ctx context.Context, delay time.Duration) {
	retry := retries(time.Minute)
	for recovered := s.client.recovered(); pause(ctx, delay, recovered, nil); delay = retry.Step() {
		recovered = s.client.recovered()
		_, err := s.client.do(ctx, newNodeConfig(s.node), nil)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			s.log.Info("created the NodeConfig of this node", "name", s.node)
		} else if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		s.mu.Lock()
		s.createErr = err
		s.signal()
		s.mu.Unlock()
	}
}

// publish makes the newest answer known, if it is a new one.
func (s *NodeConfigSource) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, ok := s.compose()
	if !ok || s.spoken && same(answer, s.answer) {
		return
	}
	s.answer, s.spoken = answer, true
	if answer.Kind != trial.Unanswered || answer.hopeless {
		select {
		case <-s.firm:
		default:
			close(s.firm)
		}
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
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
		if v.seen {
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
	a := Answer{Config: configOf(object.Spec.ConfigSource), Generation: object.Generation, NodeConfigUID: object.UID, Revoked: &revoked}
	a.Kind, a.Cause = judge(object.Generation, object.Spec.ConfigSource)
	if a.Kind != trial.Assigned {
		return a, true
	}
	found := s.found
	if found.kind == trial.Unanswered && found.cause == "" {
		return Answer{}, false // it is being asked for
	}
	a.Kind, a.Cause, a.Changed, a.hopeless = found.kind, found.cause, found.changed, found.hopeless
	a.ConfigMap, a.Payload, a.PayloadErr, a.Notice = found.raw, found.payload, found.payloadErr, found.notice
	a.Config.Payload, a.Config.Asked = found.payload.SHA256, asked(found.payload.Trial)
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

// asked is what a payload asks of its trial.
func asked(t payload.Trial) trial.Asked {
	a := trial.Asked{AllowPodLoss: t.AllowPodLoss}
	if t.Duration != nil {
		a.Duration = *t.Duration
	}
	if t.CrashLoopThreshold != nil {
		a.Starts = *t.CrashLoopThreshold + 1
	}
	return a
}

// same tells whether two answers say the same.
func same(a, b Answer) bool {
	errors := fmt.Sprint(a.PayloadErr) == fmt.Sprint(b.PayloadErr)
	digests := a.Payload.SHA256 == b.Payload.SHA256 && (a.ConfigMap == nil) == (b.ConfigMap == nil)
	a.PayloadErr, a.Payload, a.ConfigMap = nil, payload.Payload{}, nil
	b.PayloadErr, b.Payload, b.ConfigMap = nil, payload.Payload{}, nil
	return errors && digests && reflect.DeepEqual(a, b)
}
