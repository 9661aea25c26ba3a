// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// kubeletErrors are errors that kubelets logged about themselves while they were healthy.
type kubeletErrors struct {
	before   []string // of the kubelets with the configuration that was replaced
	now      []string // of those with the present one
	changed  bool     // the configuration was assigned, and a kubelet of this agent ran before it for long enough
	compared bool     // the present kubelet has been healthy for long enough
	found    []string // what is new with the present configuration
}

// next returns the errors when another kubelet starts.
func (e kubeletErrors) next(cause trial.Cause) kubeletErrors {
	if cause == trial.CauseCrash {
		e.compared = false
		return e
	}
	if e.compared { // otherwise it had no time to log what it usually logs
		e.before, e.changed = e.now, true
	}
	return kubeletErrors{before: e.before, changed: e.changed && (cause == trial.CauseChange || cause == trial.CauseResume)}
}

// compareErrors looks once, lossDelay after a kubelet became healthy, at the errors that it has logged. After a change those are reported
// that no kubelet logged with the configuration before. Neither a trial nor a rollout depends on them.
func (a *Agent) compareErrors() {
	e := &a.kubelet.errors
	if a.kubelet.process == nil || e.compared || a.state.Run.HealthyFor < lossDelay {
		return
	}
	e.compared, e.now = true, a.kubelet.process.Errors(e.now)
	if !e.changed || a.state.Run.Config.IsLocal() {
		return
	}
	if found := component.NewErrors(e.before, e.now); !slices.Equal(found, e.found) {
		e.found = found
		a.reportEvent(a.log(a.state.Run.Config), trial.Event{Warning: true, Reason: v1alpha1.ConditionNewKubeletErrors, Message: e.words()})
	}
}

// words returns what is reported; empty: nothing.
func (e kubeletErrors) words() string {
	if len(e.found) == 0 {
		return ""
	}
	return "the kubelet is healthy, and logs errors that it did not log before: " + strings.Join(e.found, "; ")
}
