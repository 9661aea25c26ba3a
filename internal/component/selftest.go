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

// comparisonLimit says how candidates are compared with the local configuration, if it is not by what the kubelet prints.
func comparisonLimit(shape *dumpShape, local setup) []Limit {
	if shape != nil {
		return nil
	}
	if layers, err := local.layers(); err != nil || len(layers) == 0 {
		return []Limit{{LimitNotComparable, "the kubelet does not print its configuration in a form that is recognized, and the node has no local configuration file to compare with: " +
			"with protected fields, no configuration is adopted"}}
	}
	return []Limit{{LimitComparedByText, "compared by text: the kubelet does not print its configuration in a form that is recognized; " +
		"fields that a flag overrides, and differences from the local configuration, are unknown"}}
}

// SelfTest is what a kubelet can be used for.
type SelfTest struct {
	Version string
	// Driven reports whether the kubelet can be driven: whether a configuration can be judged and compared before it is
	// adopted. Words say why not.
	Driven bool
	Words  string
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
		return fail("this is no kubelet that answers: " + err.Error())
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
	if err != nil {
		words = err.Error()
	}
	if words == "" {
		words = "supported"
	} else {
		t.Limits = append(t.Limits, Limit{LimitNoDropIns, words})
	}
	step(words == "supported", "drop-ins", words)
	if unknown := h.run(ctx, dryRun{stage: 1, of: whole(unknownField(h.noRuntime()))}); unknown.outcome == Accepted && unknown.lenient == "" {
		step(false, "unknown fields", "are passed over without a word")
		t.Limits = append(t.Limits, Limit{LimitLenient, "a field that this kubelet does not know is passed over without a word: a typo has no effect, and is not reported"})
	} else {
		step(true, "unknown fields", "are refused")
	}

	local := h.CheckLocal(ctx, initFile)
	t.Limits = append(t.Limits, local.Limits...)
	if local.Outcome != Accepted {
		step(false, theLocal, local.Outcome.String()+": "+local.Words)
		return fail(fmt.Sprintf("%s is %s: %s", theLocal, local.Outcome, local.Words))
	}
	step(true, theLocal, "accepted")
	switch {
	case local.Effective != nil:
		step(true, "effective configuration", "printed")
	case len(local.Limits) > 0:
		step(false, "effective configuration", local.Limits[0].Message)
	}

	for _, candidate := range h.harmless(initFile, words == "supported") {
		v := h.Check(ctx, candidate.Candidate, initFile)
		protected, compared := v.Protects(h.Protected)
		switch {
		case v.Outcome != Accepted:
			step(false, candidate.name, v.Outcome.String()+": "+v.Words)
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

func unknownField(endpoint string) []byte {
	return fmt.Appendf(nil, "apiVersion: %s\nkind: %s\nfailCgroupV1: false\ncontainerRuntimeEndpoint: %s\nevenkeelSelfTest: true\n",
		payload.UpstreamAPIVersion, payload.KubeletKind, endpoint)
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
