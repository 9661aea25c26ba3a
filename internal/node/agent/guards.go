package agent

import (
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// dropOutdatedVerdicts drops verdicts that must be found again. Those found with another local configuration matter only if
// something may be started.
func (a *Agent) dropOutdatedVerdicts(o trial.Observed) {
	if a.kubelet.process == nil || o.Intent.Kind == trial.Assigned && !a.isRunning(o.Intent.Config.Revision) {
		a.validations.dropOtherLocal(o.LocalDigest)
	}
	a.validations.dropUndecided(o.Now, a.state.Run.Config.Revision, a.kubelet.process != nil)
}

// evaluateGuards returns the verdicts of the dry runs. The guards are evaluated for the configuration that is to be adopted.
func (a *Agent) evaluateGuards(in trial.Intent) map[string]trial.Verdict {
	verdicts := map[string]trial.Verdict{}
	for revision, v := range a.validations.all() {
		verdicts[revision] = trialVerdict(v)
		if a.validations.unavailable[revision] {
			verdicts[revision] = trial.Verdict{Outcome: trial.Unavailable, Message: v.Message}
		}
		if revision != "" && verdicts[revision].Outcome == trial.Accepted && in.Kind == trial.Assigned && in.Config.Revision == revision && !a.isRunning(revision) {
			if guard := a.guard(v.Verdict, in.Config.RequestedTerms.AllowPodLoss); guard.Outcome != trial.NotValidated {
				verdicts[revision] = guard
			}
		}
	}
	return verdicts
}

func trialVerdict(v verdict) trial.Verdict {
	out := trial.Verdict{Outcome: trial.CouldNotTell, Message: v.Message}
	switch {
	case v.incomparable:
		out = trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonProtectedFields, Message: v.protected}
	case v.protected != "":
		out = trial.Verdict{Outcome: trial.Protected, Guard: v1alpha1.ReasonProtectedFields, Message: v.protected}
	case v.Outcome == component.Accepted:
		out.Outcome = trial.Accepted
	case v.Outcome == component.Rejected:
		out.Outcome = trial.Rejected
	}
	return out
}

// guard returns a refusal if a configuration that the kubelet accepts would cost pods. The zero value means that it
// would not. It is evaluated for each decision, because pods, cordon and state files change.
func (a *Agent) guard(v component.Verdict, allowPodLoss bool) trial.Verdict {
	if a.p.Nodes == nil {
		return trial.Verdict{}
	}
	s := a.node.view.now(a.p.Nodes)
	if !s.Reachable {
		return trial.Verdict{Outcome: trial.CouldNotTell, Message: "cannot count the pods of this node: " + s.Cause}
	}
	pods, others := countActive(s.Pods)
	if !allowPodLoss {
		if refused := a.guardPodCount(v, s, pods); refused.Outcome != trial.NotValidated {
			return refused
		}
	}
	conflicts, err := a.p.Kubelet.StateConflicts(v.EffectiveOrAssumed())
	if err != nil {
		return trial.Verdict{Outcome: trial.CouldNotTell, Message: err.Error()}
	}
	if len(conflicts) > 0 && !(s.Unschedulable && others == 0) {
		words := make([]string, len(conflicts))
		for i, c := range conflicts {
			words[i] = c.String()
		}
		return trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonNeedsDrain,
			Message: strings.Join(words, "; ") + "; cordon and drain the node first"}
	}
	return trial.Verdict{}
}

// guardPodCount refuses a configuration with which the kubelet would kill pods because of maxPods. If the kubelet
// does not print its configuration, the Node's allocatable pods count, unless the configuration changes them.
func (a *Agent) guardPodCount(v component.Verdict, s source.NodeState, pods int64) trial.Verdict {
	most, ok := v.Effective.Int("maxPods")
	if v.Effective == nil {
		if fields := v.ChangedPodFields(a.kubelet.verdict.Verdict); len(fields) > 0 {
			return trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonWouldEvictPods,
				Message: "this kubelet does not print its configuration, so maxPods cannot be checked, and the configuration changes " +
					strings.Join(fields, ", ") + ": omit that, or set trial.allowPodLoss in the configuration"}
		}
		most, ok = s.AllocatablePods, s.AllocatablePods > 0
	}
	switch {
	case !ok:
		return trial.Verdict{Outcome: trial.CouldNotTell, Message: "the kubelet did not print its maxPods"}
	case pods > most:
		return trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonWouldEvictPods,
			Message: fmt.Sprintf("%d pods run on this node and maxPods would be %d: the kubelet would kill the excess pods; move them to other nodes first, or set trial.allowPodLoss in the configuration", pods, most)}
	}
	return trial.Verdict{}
}
