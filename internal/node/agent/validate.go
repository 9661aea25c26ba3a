// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// validate starts dry runs of configurations that have no verdict yet. They go
// before the judgement of a preflight request, which begins again after them.
func (a *Agent) validate(ctx context.Context, configs []trial.Config) {
	for _, c := range configs {
		if a.validations.has(c.Revision) {
			continue
		}

		if c.IsLocal() {
			a.beginCheck(ctx, "", func(ctx context.Context) verdict {
				basis := a.basis(a.p.Kubelet.LocalDigest())
				return verdict{Verdict: a.logVerdict(ctx, strings.ToLower(string(a.p.Kubelet.Local())), a.p.Kubelet.CheckLocal(ctx)), basis: basis}
			})
			continue
		}

		if a.assignment.answer.PayloadErr != nil && a.assignment.config.Revision == c.Revision {
			v := a.logVerdict(ctx, c.Revision, component.Verdict{Outcome: component.Rejected, Message: a.assignment.answer.PayloadErr.Error()})
			a.o.Metrics.validated(v, 0)
			a.validations.put(c.Revision, verdict{Verdict: v})
			signal(a.tasks.changed)
			continue
		}

		p, err := a.payload(c)
		if err != nil && a.assignment.config.Revision == c.Revision && a.assignment.answer.ConfigMap != nil && a.checkpoint(c.Revision) == nil {
			p, err = a.payload(c) // the file was removed after the download
		}

		if err != nil {
			if a.validations.logNew(c.Revision, err.Error()) {
				a.log(c).Error("a checkpoint cannot be used", "err", err)
			}

			a.requestDownload(c.Revision, err)
			signal(a.tasks.changed)
			continue
		}

		// Only a new configuration needs the pods, for guards and baseline. An
		// adopted one must not wait for the API.
		count := !a.state.Current.Same(c) && !a.state.LastKnownGood.Same(c)
		a.beginCheck(ctx, c.Revision, func(ctx context.Context) verdict {
			counted, basis := a.countPods(ctx), a.basis(a.p.Kubelet.LocalDigest())
			found := a.p.Kubelet.Check(ctx, p)
			if ctx.Err() == nil {
				found = a.validations.countUndecided(c.Revision, found)
			}

			v := a.compareFields(a.logVerdict(ctx, c.Revision, found))
			v.basis, v.values = basis, p.Values
			if count {
				counted.wait(ctx)
			}

			return v
		})
	}

	if a.validations.busy() {
		a.preflight.stop()
	}
}

// beginCheck begins the dry run of a revision.
func (a *Agent) beginCheck(ctx context.Context, revision string, check func(context.Context) verdict) {
	a.validations.byRev[revision] = begin(ctx, a.tasks, func(ctx context.Context) verdict {
		start := time.Now()
		v := check(ctx)
		v.at = time.Now()
		if ctx.Err() == nil {
			a.o.Metrics.validated(v.Verdict, time.Since(start))
		}

		return v
	})
}

// basis changes with everything that a verdict depends on, besides the
// configuration: the kubelet's binary and the local configuration.
func (a *Agent) basis(localDigest string) string {
	identity, _ := a.p.Kubelet.Identity() // empty while there is none
	return identity + " " + localDigest
}

// requestDownload marks a checkpoint as unavailable. If it is assigned, it is
// downloaded again, but not often: the disk may be faulty.
func (a *Agent) requestDownload(revision string, err error) {
	a.markUnavailable(revision, err)
	if a.p.Source != nil && a.assignment.config.Revision == revision && time.Since(a.assignment.redownloaded) > storageRetry {
		a.assignment.saved, a.assignment.redownloaded = trial.Config{}, time.Now()
		a.p.Source.Refresh()
	}
}

// markUnavailable marks a configuration as one that cannot run now.
func (a *Agent) markUnavailable(revision string, err error) {
	a.validations.put(revision, verdict{Verdict: component.Verdict{Outcome: component.CouldNotTell, Message: err.Error()}, unavailable: true})
}

// logVerdict logs a verdict, at info level if it is new and still needed, and
// returns it.
func (a *Agent) logVerdict(ctx context.Context, uid string, v component.Verdict) component.Verdict {
	level := slog.LevelDebug
	if ctx.Err() == nil && a.validations.logNew(uid, v.Outcome.String()+v.Message) {
		level = slog.LevelInfo
	}

	a.o.Log.Log(ctx, level, "validated", "uid", uid, "verdict", v.Outcome.String(), "stage", v.Stage, "words", v.Message, "warnings",
		v.Warnings)

	return v
}

// compareFields adds the differences from the local configuration and the check
// of protected fields to a verdict. It drops the local configuration itself,
// which is the same in all verdicts.
func (a *Agent) compareFields(v component.Verdict) verdict {
	out := verdict{Verdict: v}
	if v.Effective != nil && v.Local != nil {
		out.differs = payload.Diff(v.Effective, v.Local)
	}

	if v.Outcome == component.Accepted {
		words, compared := v.CheckProtected(a.o.Protected)
		out.protected, out.incomparable = words, !compared
	}

	out.Local = nil

	return out
}

// payload returns the payload of a saved configuration, with the values that
// its rules had when it was saved.
func (a *Agent) payload(c trial.Config) (payload.Resolved, error) {
	raw, err := a.disk.store.Get(c)
	if err != nil {
		return payload.Resolved{}, err
	}

	p, values, err := decodeCheckpoint(raw)
	switch {
	case err != nil:
	case c.SHA256 != "" && p.SHA256 != c.SHA256:
		err = errors.New("the payload does not match the recorded digest")
	default:
		resolved, wrong := p.ResolveRecorded(values)
		if wrong == nil && resolved.Digest == c.ResolvedSHA256 {
			return resolved, nil
		}

		err = cmp.Or(wrong, errors.New("the values of the rules do not match the recorded digest"))
	}

	return payload.Resolved{}, fmt.Errorf("checkpoint %s: %w", c.Revision, err)
}
