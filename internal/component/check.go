package component

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// prove makes sure that this kubelet binary stops where stage 1 of the dry run ends, with a configuration that could
// not do harm if it went on. A proof holds until the binary is replaced; without one there is no dry run.
//
// Whether stage 2 may be used is decided by Check, which knows the local configuration: once that was seen to come to
// the end of stage 2 with this binary.
func (h *Harness) prove(ctx context.Context) (Identity, error) {
	id, err := h.k.Identity()
	if err != nil {
		return id, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.proven == id {
		return id, nil
	}
	removeLeftovers(h.scratch, h.log)
	if a := h.runEmpty(ctx, payload.UpstreamAPIVersion); a.outcome != Accepted {
		return id, fmt.Errorf("the dry run does not work with this kubelet: %s", a.words)
	}
	h.proven = id
	return id, nil
}

func (h *Harness) runEmpty(ctx context.Context, apiVersion string) answer {
	data, err := json.Marshal(map[string]any{
		"apiVersion": apiVersion,
		"kind":       payload.KubeletKind,
		// Without this no configuration is accepted on a host with cgroup v1.
		"failCgroupV1": false,
		// There is none: a kubelet that does not stop where it should cannot go far.
		"containerRuntimeEndpoint": "unix://" + filepath.Join(h.scratch, "no-runtime.sock"),
	})
	if err != nil {
		return answer{words: err.Error()}
	}
	return h.run(ctx, dryRun{stage: 1, of: whole(data)})
}

// tooOld says why a drop-in cannot be used with a kubelet of this version; "" if it can. Before 1.30 --config-dir was
// not there, or alpha: the kubelet refused it without a variable in its environment.
func (h *Harness) tooOld(ctx context.Context, id Identity) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.versionOf != id {
		version, err := h.k.Version(ctx)
		if err != nil {
			return "", err
		}
		h.version, h.versionOf = version, id
	}
	var major, minor int
	if _, err := fmt.Sscanf(h.version, "v%d.%d", &major, &minor); err != nil {
		return "", fmt.Errorf("kubelet version %s: %w", h.version, err)
	}
	if major == 1 && minor < 30 {
		return fmt.Sprintf("kubelet %s is too old for a drop-in: --config-dir works from v1.30 on; use the key \"kubelet\"", h.version), nil
	}
	return "", nil
}

// CheckLocal judges the local configuration at stage 1: initFile if given, which replaces --config and --config-dir,
// else the kubelet's own. It is rejected only if an empty configuration, without the node's flags, is accepted now. An
// unknown field is a warning, as it is to the kubelet.
func (h *Harness) CheckLocal(ctx context.Context, initFile string) Verdict {
	if _, err := h.prove(ctx); err != nil {
		return Verdict{Words: err.Error()}
	}
	local := h.k.local(initFile)
	others, stop := context.WithCancel(ctx)
	defer stop()
	bare := h.runBare(others, local)
	a := h.run(ctx, dryRun{stage: 1, of: local, nodeFlags: true})
	if a.outcome != Accepted {
		stop()
	}
	unflagged := bare()
	v := Verdict{Outcome: a.outcome, Stage: 1, Words: a.words, Effective: a.effective, Local: a.effective}
	if a.lenient != "" {
		v.Warnings = append(v.Warnings, a.lenient)
	}
	switch a.outcome {
	case Accepted:
		h.explain(&v, local, unflagged)
	case Rejected:
		if empty := h.runEmpty(ctx, payload.UpstreamAPIVersion); empty.outcome != Accepted {
			v.Outcome = CouldNotTell
			v.Words = butSoDoes(a.words, "an empty configuration", empty.words)
		}
	}
	return v
}

// runBare begins the run of a configuration without the node's flags, if any of them sets something of it, and returns
// what waits for the answer, once. --fail-cgroupv1 stays.
func (h *Harness) runBare(ctx context.Context, of setup) func() answer {
	if !h.k.setsConfig() {
		return func() answer { return answer{} }
	}
	done := make(chan answer, 1)
	go func() { done <- h.run(ctx, dryRun{stage: 1, of: of, bare: true}) }()
	return func() answer { return <-done }
}

// Check judges a candidate, with the node's own flags, and for a drop-in with all that it is laid over. It is rejected
// only if the local configuration (initFile, see CheckLocal) passes the same stage now, or if the kubelet is too old for
// it. Where stage 2 cannot be used now, stage 1 alone accepts, and Words says why.
func (h *Harness) Check(ctx context.Context, candidate Candidate, initFile string) Verdict {
	id, err := h.prove(ctx)
	if err != nil {
		return Verdict{Words: err.Error()}
	}
	if candidate.Dropin {
		words, err := h.tooOld(ctx, id)
		switch {
		case err != nil:
			return Verdict{Words: err.Error()}
		case words != "":
			return Verdict{Outcome: Rejected, Words: words}
		}
	}
	of, err := h.k.candidate(candidate, initFile)
	if err != nil {
		return Verdict{Words: oneLine(err.Error())}
	}
	c := &check{h: h, id: id, data: candidate.Data, candidate: of, local: h.k.local(initFile)}
	return c.judge(ctx)
}

// check is one candidate while Check judges it.
type check struct {
	h                *Harness
	id               Identity
	data             []byte
	candidate, local setup

	unusable    string // why stage 2 cannot be used now
	localPassed bool   // the local configuration passed stage 2 during this check
}

// judge has two runs at a time. Stage 2 does not wait for stage 1: that would add their times, and a configuration that
// stage 1 rejects ends stage 2 at the same place. It takes longer than all the others together.
func (c *check) judge(ctx context.Context) Verdict {
	others, stop := context.WithCancel(ctx)
	defer stop()
	var second, local answer
	var wait sync.WaitGroup
	wait.Go(func() { second = c.runStage2(others) })
	a := c.runStage1(ctx)
	if a.outcome != Accepted || a.lenient != "" {
		stop()
		wait.Wait()
		return c.refused(ctx, a)
	}
	bare := c.h.runBare(others, c.candidate)
	wait.Go(func() { local = c.h.run(ctx, dryRun{stage: 1, of: c.local, nodeFlags: true}) })
	v := Verdict{Outcome: Accepted, Stage: 1, Effective: a.effective}
	unflagged := bare()
	wait.Wait()
	c.h.explain(&v, c.candidate, unflagged)
	c.explainLocal(&v, local)
	c.judgeStage2(ctx, &v, second)
	return v
}

// runStage1 runs the candidate as the kubelet would read it. Of a drop-in's fields the kubelet passes over those that it
// does not know, without a word; so a drop-in is also decoded strictly, as if it were a whole configuration.
func (c *check) runStage1(ctx context.Context) answer {
	a := c.h.run(ctx, dryRun{stage: 1, of: c.candidate, nodeFlags: true})
	if !c.candidate.run.Dropin || a.outcome == CouldNotTell {
		return a
	}
	alone := c.h.run(ctx, dryRun{stage: 1, of: whole(c.data)})
	if alone.undecoded {
		if data := c.withoutNulls(); data != nil {
			alone = c.h.run(ctx, dryRun{stage: 1, of: whole(data)})
		}
	}
	a.lenient = alone.lenient // before, it was said of the local configuration, which may
	if a.outcome == Accepted && (alone.outcome == CouldNotTell || alone.undecoded) {
		return alone
	}
	return a
}

// withoutNulls returns a drop-in without the fields that it sets to null, which gives them their defaults back: in a
// whole configuration not every field can be null. nil if there are none.
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
			inner, less := pruneNulls(v)
			pruned[name], changed = inner, changed || less
		default:
			pruned[name] = v
		}
	}
	return pruned, changed
}

// refused judges a candidate that did not pass stage 1 or that only passed with lenient decoding, which the kubelet
// itself lets pass with a warning.
func (c *check) refused(ctx context.Context, a answer) Verdict {
	words := a.objection()
	v := Verdict{Stage: 1, Words: words}
	if a.outcome == CouldNotTell {
		return v
	}
	if local := c.h.run(ctx, dryRun{stage: 1, of: c.local, nodeFlags: true}); local.outcome != Accepted {
		v.Words = butSoDoes(words, theLocal, local.words)
		return v
	}
	v.Outcome = Rejected
	return v
}

const theLocal = "the local configuration"

// butSoDoes says of a configuration's failure that another one fails as well, so that it proves nothing.
func butSoDoes(words, other, its string) string {
	if words == its {
		return clip(fmt.Sprintf("%s (but %s does not pass the dry run either, for the same reason)", words, other), maxWords)
	}
	return clip(fmt.Sprintf("%s (but %s does not pass the dry run either: %s)", words, other, its), maxWords)
}
