// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handover passes a node from one agent to another, such as from a
// bootstrap kubelet's to a self-hosted kubelet's: it waits for the node's lock,
// releases it to another agent, gives the node up if no kubelet becomes
// healthy, and answers the probes of the agent's pod.
//
// Hold takes the locks. DecideStart and DecideTenure decide, without I/O or a
// clock, whether an agent may run the node.
//
// The package must not know which configuration the agent runs, or why. It does
// not end the process: the caller maps a Failure to an exit code.
package handover

// Failure is the reason why an agent does not run the node, or stopped running
// it.
type Failure int

// The failures.
const (
	Unusable      Failure = iota + 1 // the lock file cannot be used
	Lost                             // the lock file was replaced, and another process holds the lock of the new file
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
