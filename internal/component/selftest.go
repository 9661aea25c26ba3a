package component

import (
	"context"
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Limit is a restriction of what evenkeel can do with a node's kubelet.
type Limit struct {
	Reason  string `json:"reason"` // one of the reasons below
	Message string `json:"message"`
}

// Reasons of limits.
const (
	// LimitComparedByText: the kubelet does not print its configuration in a known form.
	LimitComparedByText = "ComparedByText"
	// LimitNotComparable: LimitComparedByText, and there is no local configuration file to compare with.
	LimitNotComparable = "NotComparable"
	// LimitValidationOnly: stage 2 of the dry run is unavailable.
	LimitValidationOnly = "ValidationOnly"
	// LimitNoDropIns: the kubelet is too old for drop-ins.
	LimitNoDropIns = "NoDropIns"
	// LimitLenient: the kubelet silently ignores unknown fields.
	LimitLenient = "LenientDecoding"
)

// limits returns the limits of a kubelet that do not depend on a candidate.
func (h *DryRunner) limits(ctx context.Context, caps capabilities, local configuration) []Limit {
	var limits []Limit
	if caps.shape == nil {
		if layers, err := local.layers(); err != nil || len(layers) == 0 || !h.k.hasFile(local) {
			limits = append(limits, Limit{LimitNotComparable, "the kubelet does not print its configuration in a known form, and the node has no local configuration file to compare with: " +
				"with protected fields, every configuration is refused"})
		} else {
			limits = append(limits, Limit{LimitComparedByText, "compared by text: the kubelet does not print its configuration in a known form; " +
				"fields overridden by flags, and differences from the local configuration, are unknown"})
		}
	}
	if message, err := h.noDropinSupport(ctx, caps.id); err == nil && message != "" {
		limits = append(limits, Limit{LimitNoDropIns, message})
	}
	if caps.ignoresUnknown {
		limits = append(limits, Limit{LimitLenient, "the kubelet ignores unknown fields silently: a typo has no effect and is not reported, and drop-ins are rejected"})
	}
	return limits
}

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

	caps, err := h.probe(ctx)
	if err != nil {
		step(false, "dry run", err.Error())
		return fail(err.Error())
	}
	step(true, "dry run", "stops before it starts anything")
	message, err := h.noDropinSupport(ctx, caps.id)
	switch {
	case err != nil:
		step(false, "drop-ins", err.Error())
	case message != "":
		step(false, "drop-ins", message)
	default:
		step(true, "drop-ins", "supported")
	}
	step(!caps.ignoresUnknown, "unknown fields", map[bool]string{true: "are ignored silently", false: "are refused"}[caps.ignoresUnknown])

	local := h.CheckLocal(ctx, initFile)
	t.Limits = append(t.Limits, local.Limits...)
	if local.Outcome != Accepted {
		step(false, localName, local.Outcome.String()+": "+local.Message)
		t.Unknown = local.Outcome == CouldNotTell
		return fail(fmt.Sprintf("%s is %s: %s", localName, local.Outcome, local.Message))
	}
	step(true, localName, "accepted")
	switch {
	case local.Effective != nil:
		step(true, "effective configuration", "printed")
	case len(local.Limits) > 0:
		step(false, "effective configuration", local.Limits[0].Message)
	}

	for _, candidate := range h.harmlessCandidates(initFile, message == "" && err == nil && !caps.ignoresUnknown) {
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
		if v.Effective == nil && local.Effective != nil {
			v.Message = "its effective configuration was not recognized"
			t.Limits = append(t.Limits, Limit{LimitComparedByText, candidate.name + " is compared by text: the kubelet does not print it in a known form"})
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
func (h *DryRunner) harmlessCandidates(initFile string, dropins bool) []namedCandidate {
	empty := emptyConfig(payload.UpstreamAPIVersion, payload.KubeletKind)
	if dropins {
		return []namedCandidate{
			{"an empty drop-in", Candidate{Data: empty, Dropin: true}},
			{"a drop-in that logs in JSON", Candidate{Data: append(empty, "logging: {format: json}\n"...), Dropin: true}},
		}
	}
	config, _ := h.k.sources(RunConfig{InitFile: initFile})
	data, err := atomicfile.ReadBounded(config, payload.MaxSize)
	if err != nil {
		return nil // there is no local file
	}
	return []namedCandidate{{"the local configuration as a candidate", Candidate{Data: data}}}
}
