// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// probe verifies that a dry run of this kubelet binary ends after stage 1, and
// learns how the binary prints its effective configuration (the dump). It uses
// a configuration that is harmless even if the kubelet continued. The result is
// valid until the binary is replaced; without it there is no dry run.
//
// Stage 2 has its own verification in Check, because it needs the local
// configuration: a run with the local configuration must end at the end of
// stage 2.
func (h *DryRunner) probe(ctx context.Context) (capabilities, error) {
	id, err := h.k.Identity()
	if err != nil {
		return capabilities{id: id}, err
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.probed.id == id {
		return h.probed, nil
	}

	removeLeftovers(h.scratch, h.log)
	var a result
	var apiVersion string
	for _, apiVersion = range h.apiVersions {
		a = h.runEmpty(ctx, apiVersion)
		if !strings.Contains(a.message, fmt.Sprintf("is registered for version %q", apiVersion)) {
			break
		}
	}

	if a.outcome != Accepted {
		return capabilities{id: id}, fmt.Errorf("the dry run does not work with this kubelet: %s", a.message)
	}

	fields := emptyFields(payload.UpstreamAPIVersion, h.missingRuntime())
	fields["evenkeelUnknownField"] = true
	unknownFieldResult := make(chan result, 1)
	go func() { unknownFieldResult <- h.runFields(ctx, fields) }()
	shape, err := h.learnShape(ctx, a.dumps, apiVersion)
	unknownField := <-unknownFieldResult
	switch {
	case err != nil:
	case unknownField.outcome == CouldNotTell:
		err = errors.New(unknownField.message)
	case unknownField.outcome == Accepted && unknownField.strictError == "":
		err = errors.New("it ignores unknown fields, so a typo would have no effect and not be reported")
	}

	if err != nil {
		return capabilities{id: id}, fmt.Errorf("cannot find out how this kubelet reports its configuration: %w", err)
	}

	h.probed = capabilities{id: id, apiVersion: apiVersion, shape: shape}

	return h.probed, nil
}

// learnShape learns the form of a binary's dump from the dump of an empty
// configuration; nil if it prints none. An error means that it is unknown for
// now.
func (h *DryRunner) learnShape(ctx context.Context, dumps []string, apiVersion string) (*dumpShape, error) {
	shape := shapeOf(dumps, h.missingRuntime())
	if shape == nil {
		h.log.Warn("the kubelet does not print its configuration in a known form: no configuration is adopted")
		return nil, nil
	}

	empty, omits := findDump(dumps, anchorFields)
	if !omits {
		return shape, nil
	}

	a := h.runFields(ctx, shape.probeConfig(empty, emptyFields(apiVersion, h.missingRuntime())))
	if a.outcome == CouldNotTell {
		return nil, errors.New(a.message)
	}

	shape.learn(a.dumps, h.missingRuntime())

	return shape, nil
}

// anchorShape finds the dump of an empty configuration of any kubelet version.
var anchorShape = &dumpShape{fields: anchorFields}

// missingRuntime is an endpoint without a container runtime, so that a kubelet
// that continues after the dry run fails early.
func (h *DryRunner) missingRuntime() string {
	return "unix://" + filepath.Join(h.scratch, "no-runtime.sock")
}

func (h *DryRunner) runEmpty(ctx context.Context, apiVersion string) result {
	return h.runFields(ctx, emptyFields(apiVersion, h.missingRuntime()))
}

func (h *DryRunner) runFields(ctx context.Context, fields map[string]any) result {
	data, err := json.Marshal(fields)
	if err != nil {
		return result{message: err.Error()}
	}

	return h.run(ctx, dryRun{stage: 1, config: wholeConfig(data), shape: anchorShape})
}

// CheckLocal checks the local configuration at stage 1: initFile if it is set,
// which replaces --config and --config-dir, otherwise the kubelet's own. The
// configuration is rejected only if an empty configuration without the node's
// flags is accepted at the same time. An unknown field is a warning, as in the
// kubelet.
//
// A missing file is rejected without a run: on a node that has not joined its
// cluster the agent restarts every second.
func (h *DryRunner) CheckLocal(ctx context.Context, initFile string) Verdict {
	if file, _ := h.k.sources(RunConfig{InitFile: initFile}); file != "" {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return Verdict{Outcome: Rejected, Message: fmt.Sprintf("the kubelet's configuration file %s does not exist: has this node joined its "+
				"cluster?", file)}
		}
	}

	caps, err := h.probe(ctx)
	if err != nil {
		return Verdict{Message: err.Error()}
	}

	local := h.k.local(initFile)
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	bare := h.startWithoutFlags(runCtx, local, caps.shape)
	a := h.run(ctx, dryRun{stage: 1, config: local, withFlags: true, shape: caps.shape})
	if a.outcome != Accepted {
		cancel()
	}

	withoutFlags := bare()
	v := Verdict{Outcome: a.outcome, Stage: 1, Message: a.message, Effective: a.effective, Local: a.effective}
	if a.strictError != "" {
		v.Warnings = append(v.Warnings, a.strictError)
	}

	switch a.outcome {
	case Accepted:
		if caps.shape == nil {
			v.Limits = []Limit{noDump}
		}

		h.addOrigins(&v, local, withoutFlags)
	case Rejected:
		if empty := h.runEmpty(ctx, payload.UpstreamAPIVersion); empty.outcome != Accepted {
			v.Outcome = CouldNotTell
			v.Message = alsoFails(a.message, "an empty configuration", empty.message)
		}
	}

	return v
}

// startWithoutFlags starts a run of a configuration without the node's flags,
// except --fail-cgroupv1, and returns a function that waits for the result. It
// starts none if no flag sets a field of the configuration, or if the kubelet
// prints no dump to compare.
func (h *DryRunner) startWithoutFlags(ctx context.Context, config configuration, shape *dumpShape) func() result {
	if !h.k.setsConfig() || shape == nil {
		return func() result { return result{} }
	}

	done := make(chan result, 1)
	go func() { done <- h.run(ctx, dryRun{stage: 1, config: config, withoutFlags: true, shape: shape}) }()

	return func() result { return <-done }
}

// Check checks a candidate with the node's own flags, and a drop-in together
// with the configuration below it. A candidate is rejected if the local
// configuration (initFile, see CheckLocal) passes the same stage at the same
// time, or if the file that it names as client CA is unusable. Stage 2 has side
// effects, so it runs only if stage 1 accepts and no protected field differs
// from the local configuration. If stage 2 is unavailable, stage 1 alone
// accepts, and Message says why; if it rejects the local configuration, there
// is no verdict. The message of a rejection holds all errors: see objections.
func (h *DryRunner) Check(ctx context.Context, candidate Candidate, initFile string) Verdict {
	judge := func(ctx context.Context, data []byte) Verdict {
		candidate.Data = data
		return h.judge(ctx, candidate, initFile)
	}
	data := candidate.Data
	v := judge(ctx, data)
	if errs := objections(ctx, v, data, judge); len(errs) > 0 {
		v.Message = oneLine(strings.Join(errs, "; "))
	}

	return v
}

// judge is Check with the binary's first words.
func (h *DryRunner) judge(ctx context.Context, candidate Candidate, initFile string) Verdict {
	caps, err := h.probe(ctx)
	if err != nil {
		return Verdict{Message: err.Error()}
	}

	config, err := h.k.candidate(candidate, initFile)
	if err != nil {
		return Verdict{Message: oneLine(err.Error())}
	}

	c := &check{h: h, capabilities: caps, data: candidate.Data, candidate: config, local: h.k.local(initFile)}
	if v, final := c.checkClientCA(); final {
		return v
	}

	return c.run(ctx)
}

// check is the state of one call of Check.
type check struct {
	h *DryRunner
	capabilities
	data             []byte
	candidate, local configuration
	runtime          string // endpoint in the local configuration, for stage 2

	localPassed bool // the local configuration passed stage 2 during this check
}

func (c *check) stage1(config configuration) dryRun {
	return dryRun{stage: 1, config: config, withFlags: true, shape: c.shape}
}

// run does two runs of stage 1 in parallel, and then the runs of stage 2.
func (c *check) run(ctx context.Context) Verdict {
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var local result
	var wait sync.WaitGroup
	wait.Go(func() { local = c.h.run(runCtx, c.stage1(c.local)) })
	a := c.runStage1(ctx)
	if a.outcome != Accepted || a.strictError != "" {
		if a.outcome == CouldNotTell && !a.ownFailure {
			cancel()
		}

		wait.Wait()

		return c.rejected(a, local)
	}

	bare := c.h.startWithoutFlags(runCtx, c.candidate, c.shape)
	v := Verdict{Outcome: Accepted, Stage: 1, Effective: a.effective}
	withoutFlags := bare()
	wait.Wait()
	c.h.addOrigins(&v, c.candidate, withoutFlags)
	c.addLocal(&v, local)
	if message, compared := v.CheckProtected(c.h.Protected); message != "" || !compared {
		return v
	}

	c.runtime = RuntimeEndpoint(v.Local)
	c.addStage2(ctx, &v)

	return v
}

// runStage1 runs the candidate as the kubelet would read it. The kubelet
// silently ignores unknown fields of a drop-in, so a drop-in is also decoded
// strictly, as a whole configuration.
func (c *check) runStage1(ctx context.Context) result {
	a := c.h.run(ctx, c.stage1(c.candidate))
	if !c.candidate.run.Dropin || a.outcome == CouldNotTell {
		return a
	}

	alone := c.h.run(ctx, dryRun{stage: 1, config: wholeConfig(c.data)})
	if alone.decodeFailed {
		if data := c.withoutNulls(); data != nil {
			alone = c.h.run(ctx, dryRun{stage: 1, config: wholeConfig(data)})
		}
	}

	a.strictError = alone.strictError // so far it described the local configuration, where unknown fields are allowed
	if a.outcome == Accepted && (alone.outcome == CouldNotTell || alone.decodeFailed) {
		return alone
	}

	return a
}

// withoutNulls returns a drop-in without the fields that are null, or nil if it
// has none. Null resets a field to its default in a drop-in, but not every
// field of a whole configuration may be null.
func (c *check) withoutNulls() []byte {
	l, err := c.candidate.payload()
	if err != nil {
		return nil
	}

	fields, changed := pruneNulls(l.fields)
	data, err := json.Marshal(fields)
	if err != nil || !changed {
		return nil
	}

	return data
}

func pruneNulls(fields map[string]any) (pruned map[string]any, changed bool) {
	pruned = map[string]any{}
	for name, value := range fields {
		switch v := value.(type) {
		case nil:
			changed = true
		case map[string]any:
			inner, removed := pruneNulls(v)
			pruned[name], changed = inner, changed || removed
		default:
			pruned[name] = v
		}
	}

	return pruned, changed
}

// rejected returns the verdict on a candidate that failed stage 1, or that
// passed only with lenient decoding. local is the result of the local
// configuration at the same time.
func (c *check) rejected(a, local result) Verdict {
	message := a.objection()
	v := Verdict{Stage: 1, Message: message}
	switch {
	case a.outcome == CouldNotTell:
		v.CandidateOnly = a.ownFailure && local.outcome == Accepted
	case local.outcome != Accepted:
		v.Message = alsoFails(message, localName, local.message)
	default:
		v.Outcome = Rejected
	}

	return v
}

const localName = "the local configuration"

// alsoFails adds to an error that another configuration fails as well, so the
// error proves nothing about this one.
func alsoFails(message, other, its string) string {
	if message == its {
		return clip(fmt.Sprintf("%s (but %s does not pass the dry run either, for the same reason)", message, other), maxMessage)
	}

	return clip(fmt.Sprintf("%s (but %s does not pass the dry run either: %s)", message, other, its), maxMessage)
}
