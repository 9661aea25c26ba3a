package rollout

// Request is who asked for something, and why. It changes no decision, only messages.
type Request struct {
	User     string // empty: not known
	Verified bool   // the API server wrote User; otherwise the client claimed it
	Reason   string // empty: none was given
}

// name returns the user's name, and says if nothing proves it.
func (r Request) name() string {
	if r.User == "" || r.Verified {
		return r.User
	}
	return r.User + " (claimed)"
}

// words returns " by NAME: REASON", without the parts that are not known.
func (r Request) words() string {
	out := ""
	if name := r.name(); name != "" {
		out = " by " + name
	}
	if r.Reason != "" {
		out += ": " + r.Reason
	}
	return out
}

// stoppedBy says who aborted a revision, and why.
func (r Request) stoppedBy() string {
	if r.User == "" {
		return "stopped by a person" + r.words()
	}
	return "stopped" + r.words()
}

// frozenWords begins a message about a frozen rollout.
func (p *Policy) frozenWords() string {
	if words := p.Freezer.words(); words != "" {
		return "spec.frozen" + words + "; "
	}
	return "spec.frozen: "
}
