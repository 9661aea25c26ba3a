// Package handover decides which of a node's agents runs the kubelet: it takes and releases the node's lock, waits in its
// queue, gives way to another agent, gives the node up when no kubelet gets healthy, and answers probes meanwhile.
//
// It must not know what the agent runs, or why; and it must not end the process: a Failure says which exit code is due.
package handover

// Failure is why an agent does not run the node, or no longer.
type Failure int

const (
	Unusable      Failure = iota + 1 // the lock file cannot be used
	Lost                             // the lock file was replaced, and another process has the lock on the new one
	DirectoryHeld                    // another agent works on the directory
	GaveUp                           // no kubelet of this agent was healthy
)

// Error is an error whose cause is known, so that the process can end with an exit code of its own.
type Error struct {
	Failure Failure
	Err     error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func fail(f Failure, err error) error { return &Error{f, err} }
