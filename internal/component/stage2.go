package component

import "context"

// stage2 describes a run with the local configuration's runtime, so that an endpoint that only the candidate names is
// never used.
func (c *check) stage2(of setup) dryRun {
	return dryRun{stage: 2, of: of, nodeFlags: true, runtime: c.runtime}
}

// runStage2 runs the candidate up to the point before the kubelet starts, if the same binary stopped there with the
// local configuration.
func (c *check) runStage2(ctx context.Context) answer {
	h := c.h
	h.mu.Lock()
	proven, banned := h.stage2 == c.id, h.banned == c.id
	h.mu.Unlock()
	if banned {
		c.unusable = "this kubelet continues past the end of stage 2"
		return answer{}
	}
	if !proven {
		local := h.run(ctx, c.stage2(c.local))
		c.remember(local)
		if local.outcome != Accepted {
			c.unusable, c.outage = "the local configuration does not pass it: "+local.words, local.noRuntime || local.outcome == CouldNotTell && !local.strayed
			return answer{}
		}
		c.localPassed = true
	}
	a := h.run(ctx, c.stage2(c.candidate))
	if a.strayed {
		c.remember(a)
		c.unusable = a.words
	}
	return a
}

// rememberStage2 stores whether the binary stopped at the end of stage 2.
func (c *check) remember(a answer) {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	switch {
	case a.strayed:
		c.h.banned, c.h.stage2 = c.id, Identity{}
	case a.outcome == Accepted:
		c.h.stage2 = c.id
	}
}

// applyStage2 adds the result of stage 2 to the verdict of stage 1.
func (c *check) judgeStage2(ctx context.Context, v *Verdict, a answer) {
	switch {
	case c.unusable != "":
		v.Words = clip("stage 2 of the dry run was not used: "+c.unusable, maxWords)
		if !c.outage {
			v.Limits = append(v.Limits, Limit{LimitValidationOnly, "the dry run only validates a configuration, because its second stage cannot be used with this kubelet " +
				"or with the local configuration; other errors appear only in the trial"})
		}
		return
	case a.outcome == Accepted:
		v.Stage = 2
		c.judgeRuntime(v)
		return
	case a.outcome == CouldNotTell:
		v.Outcome, v.Stage, v.Words = CouldNotTell, 2, a.words
		// The runtime may have hung only after the local configuration passed.
		v.CandidateOnly = a.cutShort && c.h.run(ctx, c.stage2(c.local)).outcome == Accepted
		return
	}
	// The local configuration, tested now, shows whether the candidate or the node is the cause.
	if !c.localPassed || a.noRuntime {
		local := c.h.run(ctx, c.stage2(c.local))
		switch {
		case local.outcome == Accepted:
		case local.noRuntime:
			v.Words = clip("stage 2 of the dry run was not used: "+local.words, maxWords)
			return
		default:
			v.Outcome, v.Stage = CouldNotTell, 2
			v.Words = butSoDoes(a.words, theLocal, local.words)
			return
		}
	}
	c.judgeAgain(v, a, c.h.run(ctx, c.stage2(c.candidate)))
}

// applySecondRun decides with a second run on a candidate that stage 2 rejected while the local configuration passed:
// the cause may have been temporary. A container runtime that failed only with the candidate, each time, is not a
// rejection: both the candidate (runtimeRequestTimeout) and chance can cause it.
func (c *check) judgeAgain(v *Verdict, first, second answer) {
	v.Stage, v.Words = 2, second.words
	switch {
	case second.strayed:
		c.remember(second)
		v.Outcome = CouldNotTell
	case second.outcome == Accepted:
		c.judgeRuntime(v)
	case second.outcome == CouldNotTell || first.noRuntime || second.noRuntime:
		v.Outcome = CouldNotTell
		v.CandidateOnly = second.noRuntime || second.cutShort
	default:
		v.Outcome = Rejected
	}
}
