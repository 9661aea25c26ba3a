package component

import (
	"context"
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// Limit is something that evenkeel cannot do with a node's kubelet, although it can drive it.
type Limit struct {
	Reason  string `json:"reason"` // one of the reasons below
	Message string `json:"message"`
}

// The reasons of limits.
const (
	// LimitComparedByText: the kubelet does not print its configuration in a form that is recognized.
	LimitComparedByText = "ComparedByText"
	// LimitNotComparable: the same, and there is no local configuration file to compare with.
	LimitNotComparable = "NotComparable"
	// LimitValidationOnly: stage 2 of the dry run cannot be used.
	LimitValidationOnly = "ValidationOnly"
	// LimitNoDropIns: the kubelet is too old for drop-ins.
	LimitNoDropIns = "NoDropIns"
	// LimitLenient: the kubelet does not say that it passes over unknown fields.
	LimitLenient = "LenientDecoding"
)

// limits returns what cannot be done with a kubelet, as far as it shows without a candidate.
func (h *Harness) limits(ctx context.Context, proven proof, local setup) []Limit {
	var limits []Limit
	if proven.shape == nil {
		if layers, err := local.layers(); err != nil || len(layers) == 0 || !h.k.hasFile(local) {
			limits = append(limits, Limit{LimitNotComparable, "the kubelet does not print its configuration in a form that is recognized, and the node has no local configuration file to compare with: " +
				"with protected fields, no configuration is adopted"})
		} else {
			limits = append(limits, Limit{LimitComparedByText, "compared by text: the kubelet does not print its configuration in a form that is recognized; " +
				"fields that a flag overrides, and differences from the local configuration, are unknown"})
		}
	}
	if words, err := h.tooOld(ctx, proven.id); err == nil && words != "" {
		limits = append(limits, Limit{LimitNoDropIns, words})
	}
	if proven.lenient {
		limits = append(limits, Limit{LimitLenient, "the kubelet ignores unknown fields silently: a typo has no effect and is not reported, and drop-ins are rejected"})
	}
	return limits
}

// SelfTest is what a kubelet can be used for.
type SelfTest struct {
	Version string
	// Driven reports whether the kubelet can be driven: whether a configuration can be judged and compared before it is
	// adopted. Words say why not.
	Driven bool
	Words  string
	// Unsure reports whether it could not be found out now if the kubelet can be driven.
	Unsure bool
	// Steps are what was tried, in order, and what came of it.
	Steps []SelfTestStep
	// Limits are what cannot be done.
	Limits []Limit
}

// SelfTestStep is one thing that was tried.
type SelfTestStep struct {
	Name  string
	OK    bool
	Words string // what was found; why not
}

// SelfTest finds out what this kubelet can be used for on this node, with its flags and its local configuration (initFile,
// see CheckLocal), within seconds and without running it. Nothing is changed.
func (h *Harness) SelfTest(ctx context.Context, initFile string) SelfTest {
	var t SelfTest
	step := func(ok bool, name, words string) bool {
		t.Steps = append(t.Steps, SelfTestStep{name, ok, words})
		return ok
	}
	fail := func(words string) SelfTest {
		t.Words = words
		return t
	}
	version, err := h.k.Version(ctx)
	if err != nil {
		step(false, "version", err.Error())
		return fail("the kubelet does not report a version: " + err.Error())
	}
	t.Version = version
	step(true, "version", version)

	proven, err := h.prove(ctx)
	if err != nil {
		step(false, "dry run", err.Error())
		return fail(err.Error())
	}
	step(true, "dry run", "stops before it starts anything")
	words, err := h.tooOld(ctx, proven.id)
	switch {
	case err != nil:
		step(false, "drop-ins", err.Error())
	case words != "":
		step(false, "drop-ins", words)
	default:
		step(true, "drop-ins", "supported")
	}
	step(!proven.lenient, "unknown fields", map[bool]string{true: "are ignored silently", false: "are refused"}[proven.lenient])

	local := h.CheckLocal(ctx, initFile)
	t.Limits = append(t.Limits, local.Limits...)
	if local.Outcome != Accepted {
		step(false, theLocal, local.Outcome.String()+": "+local.Words)
		t.Unsure = local.Outcome == CouldNotTell
		return fail(fmt.Sprintf("%s is %s: %s", theLocal, local.Outcome, local.Words))
	}
	step(true, theLocal, "accepted")
	switch {
	case local.Effective != nil:
		step(true, "effective configuration", "printed")
	case len(local.Limits) > 0:
		step(false, "effective configuration", local.Limits[0].Message)
	}

	for _, candidate := range h.harmless(initFile, words == "" && err == nil && !proven.lenient) {
		v := h.Check(ctx, candidate.Candidate, initFile)
		protected, compared := v.Protects(h.Protected)
		switch {
		case v.Outcome != Accepted:
			step(false, candidate.name, v.Outcome.String()+": "+v.Words)
			t.Unsure = v.Outcome == CouldNotTell
			return fail(fmt.Sprintf("%s is %s: %s", candidate.name, v.Outcome, v.Words))
		case !compared || protected != "":
			step(false, candidate.name, protected)
			return fail("no configuration can be adopted: " + protected)
		}
		if v.Effective == nil && local.Effective != nil {
			v.Words = "what it would be was not recognized"
			t.Limits = append(t.Limits, Limit{LimitComparedByText, candidate.name + " is compared by text: the kubelet does not print it in a form that is recognized"})
		}
		step(v.Stage == 2 && v.Words == "", candidate.name, strings.TrimSuffix("accepted; "+v.Words, "; "))
		for _, limit := range v.Limits {
			if limit.Reason == LimitValidationOnly && !t.has(limit.Reason) {
				t.Limits = append(t.Limits, limit)
			}
		}
	}
	t.Driven = true
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

// harmless returns candidates that change nothing of what matters, each for what it shows.
func (h *Harness) harmless(initFile string, dropins bool) []namedCandidate {
	empty := emptyConfig(payload.UpstreamAPIVersion, payload.KubeletKind)
	if dropins {
		return []namedCandidate{
			{"an empty drop-in", Candidate{Data: empty, Dropin: true}},
			{"a drop-in that logs in JSON", Candidate{Data: append(empty, "logging: {format: json}\n"...), Dropin: true}},
		}
	}
	config, _ := h.k.sources(Run{InitFile: initFile})
	data, err := readBounded(config, payload.MaxSize)
	if err != nil {
		return nil // there is none
	}
	return []namedCandidate{{"the local configuration as a candidate", Candidate{Data: data}}}
}
