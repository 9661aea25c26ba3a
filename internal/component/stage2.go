// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// stage2 describes a run of the configuration with this dump. It has the local
// configuration's runtime, so that an endpoint that only the candidate names is
// never used.
func (c *check) stage2(config configuration, dump Effective) dryRun {
	sysctls, _ := dump["allowedUnsafeSysctls"].([]any)
	return dryRun{stage: 2, config: config, withFlags: true, runtime: c.runtime, sysctls: sysctls}
}

// stage2Usable reports whether the same binary stopped at the end of stage 2
// with the local configuration. If not, the verdict of stage 1 says why stage 2
// is not used.
func (c *check) stage2Usable(ctx context.Context, v *Verdict) bool {
	notUsed := func(why string, never bool) bool {
		v.Message = clip("stage 2 of the dry run was not used: "+why, maxMessage)
		if never {
			v.Limits = append(v.Limits, Limit{LimitValidationOnly, "the dry run only validates a configuration, because its second stage " +
				"cannot be used with this kubelet; other errors appear only in the trial"})
		}

		return false
	}
	c.h.mu.Lock()
	safe, unsafe := c.h.stage2Safe == c.id, c.h.stage2Unsafe == c.id
	c.h.mu.Unlock()
	switch {
	case unsafe:
		return notUsed("this kubelet continues past the end of stage 2", true)
	case c.runtime == "":
		return notUsed("the local configuration's container runtime is unknown", false)
	case safe:
		return true
	}

	switch local := c.runLocal(ctx, v); {
	case local.outcome == Accepted:
		return true
	case local.outcome == Rejected && !local.runtimeFailed:
		// The candidate may fail in the same way, and the node cannot go back
		// to the local configuration.
		v.Outcome = CouldNotTell
		v.Message = clip("correct the node's local configuration, and this one is judged again: "+
			"the kubelet would not start with the local one: "+local.message, maxMessage)
		return false
	default:
		return notUsed("the local configuration does not pass it: "+local.message, local.overran)
	}
}

// runLocal runs the local configuration, and stores whether the binary stopped
// at the end of stage 2. A candidate's run is no proof of that: its author may
// know how to make it look as if the kubelet continued.
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

// addStage2 runs the candidate up to the point before the kubelet starts, and
// adds the result to the verdict of stage 1.
func (c *check) addStage2(ctx context.Context, v *Verdict) {
	if !c.stage2Usable(ctx, v) {
		return
	}

	a := c.h.run(ctx, c.stage2(c.candidate, v.Effective))
	switch a.outcome {
	case Accepted:
		v.Stage = 2
		c.checkRuntimeEndpoint(v)
		return
	case CouldNotTell:
		c.applyUndecided(ctx, v, a)
		return
	}

	// The local configuration, tested now, shows whether the candidate or the
	// node is the cause.
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

// applyUndecided reports that a run of the candidate gave no answer. If it
// ended by itself, the local configuration is tested again: the runtime may
// have hung, or the binary may have continued, with every configuration.
func (c *check) applyUndecided(ctx context.Context, v *Verdict, a result) {
	v.Outcome, v.Stage, v.Message = CouldNotTell, 2, a.message
	v.CandidateOnly = a.ownFailure && c.runLocal(ctx, v).outcome == Accepted
}

// applySecondRun decides with a second run on a candidate that stage 2 rejected
// while the local configuration passed: the cause may have been temporary. A
// container runtime that failed only with the candidate, each time, is not a
// rejection: both the candidate (runtimeRequestTimeout) and chance can cause
// it.
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

// standInMethods are the requests that a stand-in passes on: those with which a
// kubelet builds itself. They change nothing.
var standInMethods = []string{"RuntimeService/Version", "RuntimeService/RuntimeConfig", "ImageService/ImageFsInfo"}

// startStandIn starts a stand-in for a container runtime, for one dry run, and
// returns its endpoint. It knows only standInMethods, so a kubelet that
// continues where it should have stopped reaches no container. It does not
// start its container manager either, because the runtime never reports its
// status. stop ends the stand-in.
func startStandIn(runtime, dir string) (endpoint string, stop func(), err error) {
	handle, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}

	name := "runtime.sock"
	if strings.HasSuffix(runtime, "crio.sock") { // the kubelet measures with another program if its runtime's socket has this name
		name = "crio.sock"
	}

	// The path of a socket is limited to 107 bytes, and the directory's own can
	// be longer.
	path := fmt.Sprintf("/proc/%d/fd/%d/%s", os.Getpid(), handle.Fd(), name)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return "", nil, errors.Join(atomicfile.WithStableName(err, path, name), handle.Close())
	}

	server := &http.Server{Protocols: &http.Protocols{}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := strings.TrimPrefix(r.URL.Path, "/runtime.v1.")
		answer, err := Message(nil), errors.ErrUnsupported
		if slices.Contains(standInMethods, method) {
			answer, err = CallRuntime(r.Context(), runtime, method, nil)
		}

		w.Header().Set("Content-Type", "application/grpc")
		status := func(code, message string) {
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", code)
			w.Header().Set(http.TrailerPrefix+"Grpc-Message", url.PathEscape(message))
		}
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			status("12", "unknown to this stand-in of the container runtime")
		case err != nil:
			status("14", err.Error())
		default:
			_, _ = w.Write(frame(answer)) // a kubelet that has ended needs no answer
			status("0", "")
		}
	})}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }() // until stop

	return "unix://" + path, func() { _ = errors.Join(server.Close(), handle.Close()) }, nil
}
