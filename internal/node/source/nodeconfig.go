// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// NodeConfigSource reads the intended configuration from the NodeConfig of a
// node.
type NodeConfigSource struct {
	answers
	client      *Client
	node        string
	checkpoints Checkpoints
	log         *slog.Logger
	revokedOnly bool // a ConfigMapSource uses only spec.revoked
	reporter    *Reporter

	// Under answers.mu.
	view      view[v1alpha1.NodeConfig]
	seen      bool // the NodeConfig existed
	createErr error
	assigned  assignment // the assignment that resolved belongs to
	resolved  Answer     // of fetch; the zero value: there is none yet
	preflight *Preflight // nil: none is requested
}

// NewNodeConfigSource returns a source that has no answer until Run.
func NewNodeConfigSource(client *Client, node string, checkpoints Checkpoints, log *slog.Logger) *NodeConfigSource {
	return &NodeConfigSource{
		answers: newAnswers("NodeConfig " + node),
		client:  client, node: node, checkpoints: checkpoints, log: log,
	}
}

// ShowTo makes the source show each state of the NodeConfig to the reporter,
// which then notices that its status is not the one that the agent has written,
// and writes it again. Call it before Run.
func (s *NodeConfigSource) ShowTo(r *Reporter) { s.reporter = r }

// Run watches the NodeConfig and the assigned object until ctx ends. It creates
// a missing NodeConfig.
func (s *NodeConfigSource) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := watchObject(watcher{
		client: s.client, gv: v1alpha1.GroupVersion, resource: "nodeconfigs",
		maxDelay: longestWatchDelay,
		fail:     func(err error) { s.see(nil, err) },
	}, s.node, func(nc *v1alpha1.NodeConfig) { s.see(nc, nil) })
	all.Go(func() { w.run(ctx) })

	var fetching, creating context.CancelFunc
	stop := func(f *context.CancelFunc) {
		if *f != nil {
			(*f)()
			*f = nil
		}
	}
	backoff := creationBackoff{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}

		s.mu.Lock()
		v, refresh := s.view, s.refresh
		s.refresh = false
		s.mu.Unlock()
		if v.err == nil && v.synced {
			switch a := assignmentOf(v.object); {
			case a == nil || s.revokedOnly:
				stop(&fetching)
				s.forget()
			case fetching == nil || *a != s.assigned || refresh:
				stop(&fetching)
				fetching = s.fetch(ctx, &all, *a)
			}

			if v.object != nil {
				stop(&creating)
			} else if creating == nil {
				creating = s.create(ctx, &all, backoff.next())
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

// see stores the last known state of the NodeConfig.
func (s *NodeConfigSource) see(object *v1alpha1.NodeConfig, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view.update(object, err)
	if err == nil {
		s.setPreflight(preflightOf(object))
	}

	if object != nil {
		if s.reporter != nil {
			s.reporter.status.echo.see(object.UID, object.Status)
		}

		object.ManagedFields, object.Status = nil, v1alpha1.NodeConfigStatus{} // large, and not used
		s.seen, s.createErr = true, nil
	}

	signal(s.wake)
}

// assignmentOf returns what a NodeConfig assigns, nil if it names no ConfigMap.
func assignmentOf(object *v1alpha1.NodeConfig) *assignment {
	if object == nil {
		return nil
	}
	if kind, _ := validate(object.Spec.ConfigSource); kind != trial.Assigned {
		return nil
	}

	a := &assignment{ref: *object.Spec.ConfigSource.ConfigMapRef}
	if r := object.Spec.ConfigSource.RolloutRef; r != nil {
		a.rollout, a.attempt, a.term = r.Name, r.Attempt, r.Term
	}

	return a
}

// fetch begins to resolve an assignment, and drops the result of the one
// before.
func (s *NodeConfigSource) fetch(ctx context.Context, all *sync.WaitGroup, a assignment) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.assigned, s.resolved = a, Answer{}
	s.mu.Unlock()
	f := fetch{client: s.client, checkpoints: s.checkpoints, assignment: a, report: func(resolved Answer) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if ctx.Err() == nil && s.assigned == a {
			s.resolved = resolved
			signal(s.wake)
		}
	}}
	all.Go(func() { f.run(ctx) })

	return cancel
}

func (s *NodeConfigSource) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned, s.resolved = assignment{}, Answer{}
}

// create begins to create the NodeConfig, until the returned function is
// called.
func (s *NodeConfigSource) create(ctx context.Context, all *sync.WaitGroup, delay time.Duration) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	all.Go(func() {
		retry := newRetry(s.client, time.Minute)
		// It goes on after a success: an existing NodeConfig may be deleted
		// before the watch shows it.
		for ok := sleep(ctx, delay, retry.recovered, nil); ok; ok = retry.wait(ctx, nil, nil) {
			err := s.client.createNodeConfig(ctx, s.node, s.log)
			if ctx.Err() != nil {
				return
			}

			s.mu.Lock()
			s.createErr = err
			signal(s.wake)
			s.mu.Unlock()
		}
	})

	return cancel
}

// compose makes an answer of the last known state. It returns false if nothing
// is known yet.
func (s *NodeConfigSource) compose() (Answer, bool) {
	name := "NodeConfig " + s.node
	v := s.view
	switch {
	case v.err != nil:
		return Answer{noneSoon: unavailable(v.err), Silent: silent(v.err), Intent: trial.Intent{Cause: describeError(v.err, name,
			"apply evenkeel's RBAC, which grants the group system:nodes get, list, watch and create on nodeconfigs")}}, true
	case !v.synced:
		return Answer{}, false
	case v.object == nil:
		what := "was not found"
		if s.seen {
			what = "was deleted"
		}

		cause := fmt.Sprintf("%s %s; creating it with an empty spec", name, what)
		if s.createErr != nil {
			cause = fmt.Sprintf("%s %s, and cannot be created: %s", name, what, oneLine(s.createErr.Error()))
		}

		// The new object will assign nothing, so First need not wait for it.
		return Answer{Intent: trial.Intent{Cause: cause}, noneSoon: true, Silent: s.createErr != nil && silent(s.createErr)}, true
	}

	object := v.object
	revoked := object.Spec.Revoked
	if s.revokedOnly {
		return Answer{NodeConfigUID: object.UID, Revoked: &revoked}, true
	}

	assigns := Answer{Generation: object.Generation, NodeConfigUID: object.UID, Revoked: &revoked}
	assigns.Kind, assigns.Cause = validate(object.Spec.ConfigSource)
	assigns.Config = configOf(object.Spec.ConfigSource)
	assigns.Config.AssignedBy = string(object.UID)
	if assigns.Kind == trial.Unassigned {
		assigns.Cause = name + " assigns nothing, so the node keeps its configuration; assign a configuration, or `local: {}`"
		if t := object.Spec.TakenBack; t != nil {
			assigns.TakenBack = t.DeepCopy()
			assigns.TakenBack.AssignedAt.Time = boundTime(t.AssignedAt.UTC())
		}
	}

	if assigns.Kind != trial.Assigned {
		if t := object.Spec.Trial; t != nil {
			assigns.Config.RequestedTerms.AllowPodLoss = t.AllowPodLoss // also a return to the local configuration is a restart
		}

		return assigns, true
	}

	a := s.resolved
	if a.Kind == trial.Unanswered && a.Cause == "" {
		return Answer{}, false // not resolved yet
	}

	a.Config, a.Generation, a.NodeConfigUID, a.Revoked = assigns.Config, assigns.Generation, assigns.NodeConfigUID, assigns.Revoked
	a.Config.SHA256, a.Config.Dropin = a.Payload.SHA256, a.Payload.Key == payload.KeyKubeletDropin
	if a.Kind != trial.Assigned {
		return a, true
	}

	requested, err := payload.ResolveTrial(a.Payload.Trial, object.Spec.Trial)
	if err != nil {
		assigns.Kind, assigns.Cause, assigns.Config = trial.Invalid, err.Error(), a.Config
		return assigns, true
	}

	a.Config.RequestedTerms = asked(requested)

	return a, true
}

// configOf returns the configuration that a source names. Its revision is the
// UID of the ConfigMap.
func configOf(s *v1alpha1.NodeConfigSource) trial.Config {
	if s == nil || s.ConfigMapRef == nil {
		return trial.Config{}
	}

	ref := s.ConfigMapRef
	of := v1alpha1.ConfigRevision{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	c := trial.Config{Revision: string(ref.UID), ConfigRevision: of}
	if t := s.Temporary; t != nil {
		c.End = trial.End{Requested: boundTime(t.RequestedAt.UTC()).Format(time.RFC3339)}
		c.End.After.Duration = min(max(t.Duration.Duration, v1alpha1.MinTemporary), v1alpha1.MaxTemporary) // an older CRD lets everything pass
	}

	if r := s.RolloutRef; r != nil {
		c.Rollout = v1alpha1.RolloutReference{Name: r.Name, Revision: r.Revision, Attempt: r.Attempt,
			AssignedAt: metav1.NewTime(boundTime(r.AssignedAt.UTC()))}
	}

	return c
}

// asked converts the requested terms of a trial.
func asked(t v1alpha1.TrialTerms) trial.RequestedTerms {
	a := trial.RequestedTerms{AllowPodLoss: t.AllowPodLoss}
	if t.ConfigTrialDuration != nil {
		a.Duration = *t.ConfigTrialDuration
	}
	if t.CrashLoopThreshold != nil {
		a.Starts = int(*t.CrashLoopThreshold) + 1
	}

	return a
}

// The CRD refuses what validate calls invalid, but an older CRD may not, and
// these names become parts of paths.
var (
	labelPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	namePattern  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	uidPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	shaPattern   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// validate classifies a spec by itself: Unassigned, Nil, Invalid with the
// cause, or Assigned if the object must be fetched. It implements "Finding and
// checkpointing intended configuration" of the proposal. A missing source has
// no meaning by itself: only the node knows whether this NodeConfig assigned
// the running configuration.
func validate(s *v1alpha1.NodeConfigSource) (kind trial.IntentKind, cause string) {
	switch {
	case s == nil:
		return trial.Unassigned, ""
	case s.Local == nil && s.ConfigMapRef == nil:
		return trial.Invalid, "invalid NodeConfigSource, exactly one subfield must be non-nil, but all were nil"
	case s.Local != nil && s.ConfigMapRef != nil:
		return trial.Invalid, "invalid NodeConfigSource, exactly one subfield must be non-nil, but 2 were set: local and configMapRef"
	case s.Local != nil:
		return trial.Nil, ""
	}

	for _, field := range []struct {
		name, value string
		valid       bool
		requirement string
	}{
		{"namespace", s.ConfigMapRef.Namespace, labelPattern.MatchString(s.ConfigMapRef.Namespace),
			"a DNS label of lower-case letters, digits and dashes"},
		{"name", s.ConfigMapRef.Name, len(s.ConfigMapRef.Name) <= 253 && namePattern.MatchString(s.ConfigMapRef.Name),
			"a DNS name of lower-case letters, digits, dashes and dots"},
		{"uid", string(s.ConfigMapRef.UID), uidPattern.MatchString(string(s.ConfigMapRef.UID)),
			"letters, digits, dots, dashes and underscores, beginning with a letter or digit"},
		{"sha256", s.ConfigMapRef.SHA256, s.ConfigMapRef.SHA256 == "" || shaPattern.MatchString(s.ConfigMapRef.SHA256),
			"64 lower-case hexadecimal digits"},
	} {
		if field.value == "" && !field.valid {
			return trial.Invalid, fmt.Sprintf("invalid NodeConfigSource, configMapRef.%s must be non-empty", field.name)
		}

		if !field.valid {
			return trial.Invalid, fmt.Sprintf("invalid NodeConfigSource, configMapRef.%s must be %s, but is %s", field.name, field.requirement,
				oneLine(fmt.Sprintf("%q", field.value)))
		}
	}

	return trial.Assigned, ""
}

// EnsureNodeConfig creates an empty NodeConfig for a node that takes its
// configuration from elsewhere, so that the whole fleet is visible. It returns
// when the NodeConfig exists, or ctx ends.
func EnsureNodeConfig(ctx context.Context, client *Client, node string, log *slog.Logger) {
	retry := newRetry(client, 5*time.Minute)
	for {
		err := client.createNodeConfig(ctx, node, log)
		if err == nil {
			return
		}

		log.Debug("cannot create the NodeConfig of this node, retrying", "err", err)
		if !retry.wait(ctx, nil, nil) {
			return
		}
	}
}

// createNodeConfig creates a node's NodeConfig, unless it exists.
func (c *Client) createNodeConfig(ctx context.Context, node string, log *slog.Logger) error {
	_, err := c.do(ctx, newNodeConfig(node), nil)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err == nil {
		log.Info("created the NodeConfig of this node")
	}

	return err
}

// newNodeConfig is the request that creates a NodeConfig that assigns nothing.
// It has an empty spec: without one a JSON patch cannot add spec.configSource.
func newNodeConfig(node string) request {
	return request{verb: "POST", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", body: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "NodeConfig",
		"metadata":   map[string]string{"name": node},
		"spec":       map[string]any{},
	}}
}

// creationBackoff limits how often a NodeConfig is created that someone deletes
// repeatedly.
type creationBackoff struct {
	last  time.Time
	retry wait.Backoff
}

// next returns the delay before the object is created again.
func (p *creationBackoff) next() time.Duration {
	quiet := p.last.IsZero() || time.Since(p.last) > 5*time.Minute
	p.last = time.Now()
	if quiet {
		p.retry = newBackoff(time.Minute)
		return 0
	}

	return p.retry.Step()
}
