// Package handover passes a node between agents, such as that of a bootstrap kubelet and that of a self-hosted one: who
// waits for the node's lock, giving way to another agent, giving the node up when no kubelet gets healthy, and the probe
// command that asks whichever agent runs the node for its health.
//
// Hold takes the locks. DecideStart and DecideTenure decide, without I/O or a clock, whether an agent may run the node.
//
// The package must not know which configuration the agent runs, or why. It does not end the process: a Failure tells the
// caller which exit code is due.
package handover

// Failure is why an agent does not run the node, or does not run it any longer.
type Failure int

// The failures.
const (
	Unusable      Failure = iota + 1 // the lock file cannot be used
	Lost                             // the lock file was replaced, and another process has the lock on the new one
	DirectoryHeld                    // another agent works on the directory
	GaveUp                           // no kubelet of this agent was healthy
)

// Error is an error with a Failure.
type Error struct {
	Failure Failure
	Err     error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func fail(f Failure, err error) error { return &Error{f, err} }
