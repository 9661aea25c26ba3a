package component

// Outcome is what a component's own binary says of a configuration. There is no "valid": what a dry run cannot see
// shows only when the configuration runs.
type Outcome int

// The outcomes. The zero value is the one that changes nothing.
const (
	CouldNotTell Outcome = iota
	Accepted
	Rejected
)

func (o Outcome) String() string {
	switch o {
	case Accepted:
		return "accepted"
	case Rejected:
		return "rejected"
	default:
		return "could not tell"
	}
}

// Verdict is what a dry run found out.
type Verdict struct {
	Outcome Outcome
	// Stage is how far the dry run got: 1, the configuration was decoded and validated; 2, the component was built up
	// to where it would start. 0, it did not get anywhere.
	Stage int
	// Words are the component's own, for a rejection; why, for "could not tell"; why stage 2 did not run, for an
	// acceptance at stage 1. Of bounded length.
	Words string
	// Warnings are what the component only warns about, and what could not be found out beside the verdict.
	Warnings []string
	// Effective is the configuration as the component understood it; nil unless stage 1 was passed.
	Effective Effective
	// Local is the local configuration as the same dry run printed it in this very check, to be compared with Effective;
	// nil unless stage 1 was passed, or if local could not be printed (a warning says why).
	Local Effective
	// Origins say where the fields of Effective come from, by their path, as in Overridden; one that is not here has its
	// default. nil if that is not known (a warning says why).
	Origins map[string]Origin
	// Hidden are the fields that the component prints masked (static pod URL headers) and that are not, or are not known
	// to be, as they are locally: in Effective and Local they look alike.
	Hidden []string
	// Text is how a candidate compares with the local configuration by what their files say, where Effective or Local is
	// not there; nil where both are.
	Text *TextComparison
	// Written are the fields of the configuration that the agent itself reads, as the files set them, and Assumed the same
	// with the flags and the kubelet's defaults. Assumed stands in for Effective where that is not there.
	Written, Assumed Effective
	// CandidateOnly says of "could not tell" that the local configuration passed at the same time: what kept the component
	// from a verdict may be the candidate's own fault.
	CandidateOnly bool
	// Limits are what cannot be done with this kubelet, as far as this check saw. nil: nothing.
	Limits []Limit
	// Overridden are the payload's fields that a flag of the node's command line overrides, as JSON paths
	// (maxPods, evictionHard[memory.available]).
	Overridden []string
}
