package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// defaultSteps are the steps of a strategy without steps: 1 node, 10%, all.
var defaultSteps = []rollout.Step{
	{Nodes: rollout.Amount{Value: 1}},
	{Nodes: rollout.Amount{Value: 10, Percent: true}},
	{Nodes: rollout.Amount{Value: 100, Percent: true}},
}

// Defaults of optional fields. The CRD has the same.
var (
	DefaultMaxUnavailable = intstr.FromString("10%")
	DefaultMaxFailures    = intstr.FromInt32(1)
)

// FromSpec converts a rollout's spec: a policy without revisions. The error names the invalid field; the CRD and the
// admission policy refuse the same values.
func FromSpec(r *v1alpha1.NodeConfigRollout, t Times, now time.Time) (rollout.Policy, error) {
	s := &r.Spec
	p := rollout.Policy{
		Claim: rollout.Claim{Name: r.Name, Priority: r.Spec.Priority, Created: r.CreationTimestamp.Time}, Now: now, UID: string(r.UID),
		Paused: s.Paused, Frozen: s.Frozen, NewNodesTarget: s.NewNodes == v1alpha1.NewNodesTarget,
		Soak:             time.Duration(s.SoakSeconds) * time.Second,
		NodeTimeout:      time.Duration(cmp.Or(s.NodeTimeoutSeconds, 900)) * time.Second,
		ProgressDeadline: time.Duration(cmp.Or(s.ProgressDeadlineSeconds, 3600)) * time.Second,

		RollbackOnFailure: s.FailurePolicy.Action == v1alpha1.FailureActionRollback,
		Preflight:         preflightMode(s.Strategy.Preflight), PreflightRoom: rollout.MaxUnanswered,
		AgentTimeout: t.Agent, NotReadyGrace: t.NotReady,
		DrainID: DrainID(r.UID),
	}
	setDrain(&p, &s.Strategy)
	var err error
	amount := func(field string, v *intstr.IntOrString, otherwise intstr.IntOrString) rollout.Amount {
		v = cmp.Or(v, &otherwise)
		a, e := amountOf(*v)
		if e != nil && err == nil {
			err = fmt.Errorf("spec.%s: %w", field, e)
		}
		return a
	}
	p.MaxUnavailable = amount("strategy.maxUnavailable", s.Strategy.MaxUnavailable, DefaultMaxUnavailable)
	if v := s.Strategy.MaxJoining; v != nil {
		a := amount("strategy.maxJoining", v, intstr.IntOrString{})
		p.MaxJoining = &a
	}
	if v := s.Strategy.MaxUnavailablePerDomain; v != nil {
		a := amount("strategy.maxUnavailablePerDomain", v, intstr.IntOrString{})
		p.MaxUnavailablePerDomain = &a
	}
	if v := s.Strategy.MaxDomainsInFlight; v != nil {
		p.MaxDomainsInFlight = int(*v)
	}
	p.MaxFailures = amount("failurePolicy.maxFailures", s.FailurePolicy.MaxFailures, DefaultMaxFailures)
	p.RollbackMaxUnavailable = amount("rollback.maxUnavailable", s.Rollback.MaxUnavailable, intstr.FromString("25%"))
	p.Steps = defaultSteps
	if len(s.Strategy.Steps) > 0 {
		p.Steps = nil
	}
	for i, step := range s.Strategy.Steps {
		var out rollout.Step
		if step.Nodes != nil {
			out.Nodes = amount(fmt.Sprintf("strategy.steps[%d].nodes", i), step.Nodes, intstr.IntOrString{})
		} else if step.Pause != nil && step.Pause.Duration != nil {
			out.Pause = step.Pause.Duration.Duration
		}
		p.Steps = append(p.Steps, out)
	}
	if s.Paused {
		p.PausedReason = s.PausedReason
	}
	if s.Frozen {
		p.FrozenReason = s.FrozenReason
	}
	if err == nil {
		p.Gates, err = gatesOf(s)
	}
	if a := s.Approval; a != nil {
		p.Approval = rollout.Approval{Revision: a.Revision, Step: int(a.Step), Reason: a.Reason}
	}
	if a := s.Abort; a != nil {
		p.Abort = rollout.Abort{Revision: a.Revision, Rollback: a.Rollback, Reason: a.Reason}
	}
	if a := s.Retry; a != nil && numbered(a.Revision, a.Attempt) {
		p.Retry = rollout.Retry{Revision: a.Revision, Attempt: a.Attempt, Nodes: a.Nodes}
	}
	if err == nil {
		p.Windows, err = windowsOf(s.Strategy.Windows)
	}
	if err == nil {
		err = CheckAdmission(r)
	}
	return p, err
}

// amountOf converts a number or a percentage.
func amountOf(v intstr.IntOrString) (rollout.Amount, error) {
	if v.Type == intstr.Int {
		if v.IntVal < 0 {
			return rollout.Amount{}, fmt.Errorf("%d is negative", v.IntVal)
		}
		return rollout.Amount{Value: int(v.IntVal)}, nil
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&v, 100, false)
	if err != nil || !strings.HasSuffix(v.StrVal, "%") || n < 0 || n > 100 {
		return rollout.Amount{}, fmt.Errorf("%q is neither a number nor a percentage from 0%% to 100%%", v.StrVal)
	}
	return rollout.Amount{Value: n, Percent: true}, nil
}

// MaxTrialLength limits the trial length that a node reports: a payload cannot ask for more.
const MaxTrialLength = 168 * time.Hour

// TrialLength returns the length of the trial that a node reports.
func TrialLength(t *v1alpha1.Trial) time.Duration { return limitTrial(t.DurationSeconds) }

// ReportedTrial returns the length of a trial that a node uses if nothing sets it; 0 if its agent does not report it. The NodeConfig
// may be nil.
func ReportedTrial(nc *v1alpha1.NodeConfig) time.Duration {
	if nc == nil || nc.Status.DefaultTrialSeconds == nil {
		return 0
	}
	return limitTrial(*nc.Status.DefaultTrialSeconds)
}

func limitTrial(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, 0), int64(MaxTrialLength/time.Second))) * time.Second
}

// NodeOf returns what is observed about a node, without the fields that depend on the rollout (Domain, Canary, Last, Owner)
// and without WentNotReady, which the caller observes. It contains no time that a node wrote. The NodeConfig may be nil.
func NodeOf(node *corev1.Node, nc *v1alpha1.NodeConfig) rollout.Node {
	info := node.Status.NodeInfo
	n := rollout.Node{
		Name: node.Name, Created: node.CreationTimestamp.Time,
		MachineKind: info.Architecture + " " + info.OperatingSystem + " " + info.KubeletVersion + " " + node.Labels[corev1.LabelInstanceTypeStable],
	}
	ready := ReadyCondition(node)
	n.Ready = ready != nil && ready.Status == corev1.ConditionTrue
	n.Drain = DrainOf(node)
	n.Known = slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.ConditionConfigOK && c.Status == corev1.ConditionTrue
	})
	if nc == nil {
		return n
	}
	st := &nc.Status
	n.HasConfig, n.Generation, n.Observed = true, nc.Generation, st.ObservedGeneration
	n.Reported = st.AgentVersion != "" || len(st.Conditions) > 0
	if st.RemoteConfig != "" && st.RemoteConfig != v1alpha1.RemoteConfigNodeConfig {
		n.OtherSource = string(st.RemoteConfig)
	}
	n.Source = sourceOf(nc.Spec.ConfigSource)
	if n.Observation = ObservationOf(nc); n.Observation.Rollout == "" && nc.Annotations[v1alpha1.AnnotationObserved] != "" {
		ignore(&n, "the annotation "+v1alpha1.AnnotationObserved)
	}
	if s := nc.Spec.ConfigSource; s != nil && s.RolloutRef != nil && n.Source.Rollout == "" {
		ignore(&n, "its rolloutRef")
	}
	n.Preflight = preflightOf(nc)
	for _, uid := range nc.Spec.Revoked {
		n.Revoked = append(n.Revoked, string(uid))
	}
	n.Idle = st.WorkloadPods != nil && *st.WorkloadPods == 0
	n.Disrupts = disrupts(node, st)
	n.Active, n.DefaultTrial = refOf(st.Active), ReportedTrial(nc)
	if l := st.LastKnownGood; l != nil {
		n.LastKnownGood = refOf(&l.ConfigRevision)
	}
	if t := st.Trial; t != nil {
		n.InTrial, n.TrialHealthy, n.TrialLength = true, t.HealthySeconds > 0, TrialLength(t)
	}
	for i := range st.Conditions {
		if c := &st.Conditions[i]; c.Type == v1alpha1.ConditionConfigOK {
			n.OK, n.Reason = string(c.Status), c.Reason
			n.Error = cmp.Or(st.Error, c.Message)
		}
	}
	for _, b := range st.BadConfigs {
		n.Provisional = n.Provisional || b.Provisional && string(b.UID) == n.Source.UID
	}
	return n
}

// ReadyCondition returns the condition Ready of a Node; nil if it has none.
func ReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}

func refOf(r *v1alpha1.ConfigRevision) rollout.Ref {
	if r == nil {
		return rollout.Ref{}
	}
	return rollout.Ref{UID: string(r.UID), SHA256: r.SHA256}
}

func sourceOf(s *v1alpha1.NodeConfigSource) rollout.Source {
	if s == nil {
		return rollout.Source{}
	}
	out := rollout.Source{Kind: rollout.SourceLocal}
	if ref := s.ConfigMapRef; ref != nil {
		out = configMapSource(*ref)
	}
	// With other numbers, a person wrote the source.
	if r := s.RolloutRef; r != nil && numbered(r.Revision, r.Attempt) && r.Term <= v1alpha1.MaxTerm {
		out.Rollout, out.Revision, out.Attempt, out.AssignedAt = r.Name, r.Revision, r.Attempt, r.AssignedAt.Time
		out.Term = r.Term
		// A reference without UID and sha256 may have another content now.
		if p := r.Previous; p != nil && p.ConfigMapRef.UID != "" && p.ConfigMapRef.SHA256 != "" && numbered(p.Revision, p.Attempt) {
			previous := configMapSource(p.ConfigMapRef)
			previous.Rollout, previous.Revision, previous.Attempt = p.Rollout, p.Revision, p.Attempt
			out.Previous = &previous
		}
	}
	return out
}

func configMapSource(ref v1alpha1.ConfigMapReference) rollout.Source {
	return rollout.Source{Kind: rollout.SourceConfigMap, Namespace: ref.Namespace, Name: ref.Name, UID: string(ref.UID), SHA256: ref.SHA256}
}

// ProgressOf converts a rollout's status.
func ProgressOf(st *v1alpha1.NodeConfigRolloutStatus) rollout.Progress {
	p := rollout.Progress{
		Attempt: st.Attempt, Step: int(st.Step), Updated: int(st.Nodes.Updated),
		AttemptTime: TimeOf(st.AttemptTime), Started: TimeOf(st.StartTime), StepTime: TimeOf(st.StepTime), ProgressTime: TimeOf(st.ProgressTime),
	}
	if r := st.UpdateRevision; r != nil {
		p.Revision = r.Number
		p.Succeeded = st.CurrentRevision != nil && st.CurrentRevision.Number == r.Number
	}
	p.Preflight = preflightProgress(st)
	p.Gates = gateProgressOf(st)
	p.Waiting = st.Phase != v1alpha1.RolloutProgressing && st.Phase != v1alpha1.RolloutStuck
	if h := st.Halt; h != nil {
		p.Halt = &rollout.Halt{Revision: h.Revision, Attempt: h.Attempt, Reason: h.Reason, Message: h.Message, Time: h.Time.Time, Rollback: h.Rollback}
	}
	return p
}

// RecordedInStatus returns the newest time that the controller recorded in a rollout's status.
func RecordedInStatus(st *v1alpha1.NodeConfigRolloutStatus) time.Time {
	var newest time.Time
	for _, t := range []*metav1.Time{st.StartTime, st.AttemptTime, st.StepTime, st.ProgressTime} {
		newest = Latest(newest, TimeOf(t))
	}
	if h := st.Halt; h != nil {
		newest = Latest(newest, h.Time.Time)
	}
	if p := st.Preflight; p != nil {
		newest = Latest(newest, Latest(p.StartTime.Time, TimeOf(p.EndTime)))
	}
	for i := range st.Gates {
		newest = Latest(newest, TimeOf(st.Gates[i].Time))
	}
	for i := range st.DrainingNodes {
		newest = Latest(newest, st.DrainingNodes[i].Since.Time)
	}
	return newest
}

// RecordedOnNode returns the newest time that the controller recorded on a node for a rollout. Call IgnoreLater before.
func RecordedOnNode(name string, n *rollout.Node) time.Time {
	var newest time.Time
	if n.Source.Rollout == name {
		newest = n.Source.AssignedAt
	}
	if n.Observation.Rollout == name {
		o := &n.Observation
		newest = Latest(Latest(newest, o.HealthySince), Latest(o.Maintenance.Since, o.Maintenance.Ended))
	}
	return newest
}

// Latest returns the later one of two times.
func Latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// TimeOf converts an optional time; nil becomes the zero value.
func TimeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
