// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"slices"
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
	step := func(ok bool, name, message string) {
		t.Steps = append(t.Steps, SelfTestStep{name, ok, message})
	}
	fail := func(name, message, conclusion string) SelfTest {
		step(false, name, message)
		t.Message = conclusion
		return t
	}
	// notAccepted is the end of a test whose configuration the kubelet did not accept.
	notAccepted := func(name string, v Verdict) SelfTest {
		t.Unknown = v.Outcome == CouldNotTell
		message := v.Outcome.String() + ": " + v.Message
		return fail(name, message, name+" is "+message)
	}
	version, err := h.k.Version(ctx)
	if err != nil {
		return fail("version", err.Error(), "the kubelet does not report a version: "+err.Error())
	}
	t.Version = version
	step(true, "version", version)

	if _, err := h.probe(ctx); err != nil {
		return fail("dry run", err.Error(), err.Error())
	}
	step(true, "dry run", "stops before it starts anything, and refuses unknown fields")

	local := h.CheckLocal(ctx, initFile)
	t.Limits = append(t.Limits, local.Limits...)
	if local.Outcome != Accepted {
		return notAccepted(localName, local)
	}
	step(true, localName, "accepted")
	if local.Effective == nil {
		return fail("effective configuration", noDump.Message, noDump.Message)
	}
	step(true, "effective configuration", "printed")

	// Candidates without relevant changes, each for one feature.
	empty := emptyConfig(payload.UpstreamAPIVersion, payload.KubeletKind)
	for _, candidate := range []struct {
		name string
		data []byte
	}{
		{"an empty drop-in", empty},
		{"a drop-in that logs in JSON", append(empty, "logging: {format: json}\n"...)},
	} {
		v := h.Check(ctx, Candidate{Data: candidate.data, Dropin: true}, initFile)
		protected, compared := v.CheckProtected(h.Protected)
		switch {
		case v.Outcome != Accepted:
			return notAccepted(candidate.name, v)
		case !compared || protected != "":
			return fail(candidate.name, protected, "no configuration can be adopted: "+protected)
		}
		step(v.Stage == 2 && v.Message == "", candidate.name, strings.TrimSuffix("accepted; "+v.Message, "; "))
		for _, limit := range v.Limits {
			if !slices.Contains(t.Limits, limit) {
				t.Limits = append(t.Limits, limit)
			}
		}
	}
	t.Supported = true
	return t
}
