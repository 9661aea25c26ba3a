// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import "context"

// stage2 describes a run of the configuration with this dump. It has the local configuration's runtime, so that an endpoint that only
// the candidate names is never used.
func (c *check) stage2(config configuration, dump Effective) dryRun {
	sysctls, _ := dump["allowedUnsafeSysctls"].([]any)
	return dryRun{stage: 2, config: config, withFlags: true, runtime: c.runtime, sysctls: sysctls}
}

// runStage2 runs the candidate up to the point before the kubelet starts, if the same binary stopped there with the
// local configuration.
func (c *check) runStage2(ctx context.Context, v *Verdict) result {
	h := c.h
	h.mu.Lock()
	safe, unsafe := h.stage2Safe == c.id, h.stage2Unsafe == c.id
	h.mu.Unlock()
	switch {
	case unsafe:
		c.stage2Unusable = "this kubelet continues past the end of stage 2"
		return result{}
	case c.runtime == "":
		c.stage2Unusable, c.runtimeDown = "the local configuration's container runtime is unknown", true
		return result{}
	}
	if !safe {
		if local := c.runLocal(ctx, v); local.outcome != Accepted {
			c.stage2Unusable, c.runtimeDown = "the local configuration does not pass it: "+local.message, local.runtimeFailed ||
				local.outcome == CouldNotTell && !local.overran
			if local.outcome == Rejected && !local.runtimeFailed {
				c.localFailure = local.message
			}
			return result{}
		}
	}
	return h.run(ctx, c.stage2(c.candidate, v.Effective))
}

// runLocal runs the local configuration, and stores whether the binary stopped at the end of stage 2. A candidate's run is no
// proof of that: its author may know how to make it look as if the kubelet continued.
func (c *check) runLocal(ctx context.Context, v *Verdict) result {
	a := c.h.run(ctx, c.stage2(c.local, v.Local))
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	switch {
	case a.overran:
		c.h.stage2Unsafe, c.h.stage2Safe = c.id, Identity{}
	case a.outcome == Accepted:
		c.h.stage2Safe, c.localPassed = c.id, true
	}
	return a
}

// applyStage2 adds the result of stage 2 to the verdict of stage 1.
func (c *check) applyStage2(ctx context.Context, v *Verdict, a result) {
	switch {
	case c.stage2Unusable != "":
		v.Message = clip("stage 2 of the dry run was not used: "+c.stage2Unusable, maxMessage)
		switch {
		case c.localFailure != "": // the candidate may fail in the same way, and the node cannot go back to the local configuration
			v.Outcome = CouldNotTell
			v.Message = clip("correct the node's local configuration, and this one is judged again: "+
				"the kubelet would not start with the local one: "+c.localFailure, maxMessage)
		case !c.runtimeDown:
			v.Limits = append(v.Limits, Limit{LimitValidationOnly, "the dry run only validates a configuration, because its second stage " +
				"cannot be used with this kubelet; other errors appear only in the trial"})
		}
		return
	case a.outcome == Accepted:
		v.Stage = 2
		c.checkRuntimeEndpoint(v)
		return
	case a.outcome == CouldNotTell:
		c.applyUndecided(ctx, v, a)
		return
	}
	// The local configuration, tested now, shows whether the candidate or the node is the cause.
	if !c.localPassed || a.runtimeFailed {
		local := c.runLocal(ctx, v)
		switch {
		case local.outcome == Accepted:
		case local.runtimeFailed:
			v.Message = clip("stage 2 of the dry run was not used: "+local.message, maxMessage)
			return
		default:
			v.Outcome, v.Stage = CouldNotTell, 2
			v.Message = alsoFails(a.message, localName, local.message)
			return
		}
	}
	c.applySecondRun(ctx, v, a, c.h.run(ctx, c.stage2(c.candidate, v.Effective)))
}

// applyUndecided reports that a run of the candidate gave no answer. If it ended by itself, the local configuration is
// tested again: the runtime may have hung, or the binary may have continued, with every configuration.
func (c *check) applyUndecided(ctx context.Context, v *Verdict, a result) {
	v.Outcome, v.Stage, v.Message = CouldNotTell, 2, a.message
	v.CandidateOnly = a.ownFailure && c.runLocal(ctx, v).outcome == Accepted
}

// applySecondRun decides with a second run on a candidate that stage 2 rejected while the local configuration passed:
// the cause may have been temporary. A container runtime that failed only with the candidate, each time, is not a
// rejection: both the candidate (runtimeRequestTimeout) and chance can cause it.
func (c *check) applySecondRun(ctx context.Context, v *Verdict, first, second result) {
	v.Stage, v.Message = 2, second.message
	switch {
	case second.outcome == Accepted:
		c.checkRuntimeEndpoint(v)
	case second.outcome == CouldNotTell:
		c.applyUndecided(ctx, v, second)
	case first.runtimeFailed || second.runtimeFailed:
		v.Outcome, v.CandidateOnly = CouldNotTell, second.runtimeFailed
	default:
		v.Outcome = Rejected
	}
}
