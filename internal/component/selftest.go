// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// Limit is a restriction of what evenkeel can do with a node's kubelet.
type Limit struct {
	Reason  string `json:"reason"` // one of the reasons below
	Message string `json:"message"`
}

// Reasons of limits.
const (
	// LimitNotComparable: the kubelet does not print its configuration in a known form.
	LimitNotComparable = "NotComparable"
	// LimitValidationOnly: stage 2 of the dry run is unavailable.
	LimitValidationOnly = "ValidationOnly"
)

// noDump is the limit of a kubelet whose effective configuration is never known.
var noDump = Limit{LimitNotComparable, "the kubelet does not print its configuration in a known form: every configuration is refused"}

// SelfTest reports whether and how evenkeel can use a kubelet.
type SelfTest struct {
	Version string
	// Supported reports whether the kubelet can be used: configurations can be checked and compared before they are
	// adopted. Otherwise Message says why.
	Supported bool
	Message   string
	// Unknown reports whether Supported is false only because of a temporary problem.
	Unknown bool
	// Steps are the checks with their results, in order.
	Steps []SelfTestStep
	// Limits are the restrictions.
	Limits []Limit
}

// SelfTestStep is one check of a self test.
type SelfTestStep struct {
	Name    string
	OK      bool
	Message string // the result, or the error
}

// SelfTest checks how evenkeel can use this kubelet on this node, with its flags and its local configuration
// (initFile, see CheckLocal). It takes seconds, does not start the kubelet and changes nothing.
func (h *DryRunner) SelfTest(ctx context.Context, initFile string) SelfTest {
	var t SelfTest
	step := func(ok bool, name, message string) bool {
		t.Steps = append(t.Steps, SelfTestStep{name, ok, message})
		return ok
	}
	fail := func(message string) SelfTest {
		t.Message = message
		return t
	}
	version, err := h.k.Version(ctx)
	if err != nil {
		step(false, "version", err.Error())
		return fail("the kubelet does not report a version: " + err.Error())
	}
	t.Version = version
	step(true, "version", version)

	if _, err := h.probe(ctx); err != nil {
		step(false, "dry run", err.Error())
		return fail(err.Error())
	}
	step(true, "dry run", "stops before it starts anything, and refuses unknown fields")

	local := h.CheckLocal(ctx, initFile)
	t.Limits = append(t.Limits, local.Limits...)
	if local.Outcome != Accepted {
		step(false, localName, local.Outcome.String()+": "+local.Message)
		t.Unknown = local.Outcome == CouldNotTell
		return fail(fmt.Sprintf("%s is %s: %s", localName, local.Outcome, local.Message))
	}
	step(true, localName, "accepted")
	if local.Effective == nil {
		step(false, "effective configuration", noDump.Message)
		return fail(noDump.Message)
	}
	step(true, "effective configuration", "printed")

	for _, candidate := range harmlessCandidates() {
		v := h.Check(ctx, candidate.Candidate, initFile)
		protected, compared := v.CheckProtected(h.Protected)
		switch {
		case v.Outcome != Accepted:
			step(false, candidate.name, v.Outcome.String()+": "+v.Message)
			t.Unknown = v.Outcome == CouldNotTell
			return fail(fmt.Sprintf("%s is %s: %s", candidate.name, v.Outcome, v.Message))
		case !compared || protected != "":
			step(false, candidate.name, protected)
			return fail("no configuration can be adopted: " + protected)
		}
		step(v.Stage == 2 && v.Message == "", candidate.name, strings.TrimSuffix("accepted; "+v.Message, "; "))
		for _, limit := range v.Limits {
			if limit.Reason == LimitValidationOnly && !t.has(limit.Reason) {
				t.Limits = append(t.Limits, limit)
			}
		}
	}
	t.Supported = true
	return t
}

func (t *SelfTest) has(reason string) bool {
	for _, l := range t.Limits {
		if l.Reason == reason {
			return true
		}
	}
	return false
}

type namedCandidate struct {
	name string
	Candidate
}

// harmlessCandidates returns candidates without relevant changes, each for one feature.
func harmlessCandidates() []namedCandidate {
	empty := emptyConfig(payload.UpstreamAPIVersion, payload.KubeletKind)
	return []namedCandidate{
		{"an empty drop-in", Candidate{Data: empty, Dropin: true}},
		{"a drop-in that logs in JSON", Candidate{Data: append(empty, "logging: {format: json}\n"...), Dropin: true}},
	}
}
