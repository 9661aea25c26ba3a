package component

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
)

// Prove makes sure that this kubelet binary stops where stage 1 of the dry run ends, with a configuration that could
// not do harm if it went on. A proof holds until the binary is replaced; without one there is no dry run.
//
// Whether stage 2 may be used is decided by Check, which knows the local configuration: once that was seen to come to
// the end of stage 2 with this binary.
func (h *Harness) Prove(ctx context.Context) error {
	_, err := h.prove(ctx)
	return err
}

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
	if a := h.runEmpty(ctx); a.outcome != Accepted {
		return id, fmt.Errorf("the dry run does not work with this kubelet: %s", a.words)
	}
	h.proven = id
	return id, nil
}

func (h *Harness) runEmpty(ctx context.Context) answer {
	data, err := json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		// Without this no configuration is accepted on a host with cgroup v1.
		"failCgroupV1": false,
		// There is none: a kubelet that does not stop where it should cannot go far.
		"containerRuntimeEndpoint": "unix://" + filepath.Join(h.scratch, "no-runtime.sock"),
	})
	if err != nil {
		return answer{words: err.Error()}
	}
	return h.run(ctx, dryRun{stage: 1, data: data})
}

// CheckLocal judges the local configuration at stage 1: initFile if given, which replaces --config and --config-dir,
// else the kubelet's own. It is rejected only if an empty configuration, without the node's flags, is accepted now. An
// unknown field is a warning, as it is to the kubelet.
func (h *Harness) CheckLocal(ctx context.Context, initFile string) Verdict {
	if _, err := h.prove(ctx); err != nil {
		return Verdict{Words: err.Error()}
	}
	a := h.runLocal(ctx, 1, initFile)
	v := Verdict{Outcome: a.outcome, Stage: 1, Words: a.words, Effective: a.effective}
	if a.lenient != "" {
		v.Warnings = append(v.Warnings, a.lenient)
	}
	if a.outcome == Rejected {
		if empty := h.runEmpty(ctx); empty.outcome != Accepted {
			v.Outcome = CouldNotTell
			v.Words = clip(fmt.Sprintf("%s (but an empty configuration does not pass the dry run either: %s)", a.words, empty.words), maxWords)
		}
	}
	return v
}

func (h *Harness) runLocal(ctx context.Context, stage int, initFile string) answer {
	return h.run(ctx, dryRun{stage: stage, file: initFile, nodeFlags: true})
}

// Check judges a candidate, with the node's own flags: data is a whole configuration that replaces --config and
// --config-dir. It is rejected only if the local configuration (initFile, see CheckLocal) passes the same stage now.
// Where stage 2 cannot be used now, stage 1 alone accepts, and Words says why.
func (h *Harness) Check(ctx context.Context, data []byte, initFile string) Verdict {
	id, err := h.prove(ctx)
	if err != nil {
		return Verdict{Words: err.Error()}
	}
	if data == nil {
		data = []byte{} // an empty file, not the node's own
	}
	c := &candidate{h: h, id: id, data: data, initFile: initFile}

	// Stage 2 does not wait for stage 1: that would add their times, and a configuration that stage 1 rejects ends
	// stage 2 at the same place. The third run finds a slot when the first is done.
	others, stop := context.WithCancel(ctx)
	defer stop()
	var second, bare answer
	var wait sync.WaitGroup
	first := make(chan answer, 1)
	go func() { first <- h.run(ctx, dryRun{stage: 1, data: data, nodeFlags: true}) }()
	wait.Go(func() { second = c.runStage2(others) })
	a := <-first
	if a.outcome != Accepted || a.lenient != "" {
		stop()
		wait.Wait()
		return c.refused(ctx, a)
	}
	v := Verdict{Outcome: Accepted, Stage: 1, Effective: a.effective}
	flagged := h.k.setsConfig()
	if flagged {
		wait.Go(func() { bare = h.run(ctx, dryRun{stage: 1, data: data}) })
	}
	wait.Wait()
	c.addOverridden(&v, flagged, bare)
	c.judgeStage2(ctx, &v, second)
	return v
}
