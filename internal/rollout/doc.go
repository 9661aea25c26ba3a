// Package rollout decides how a configuration rolls out to a fleet: which nodes get it next, when the rollout stops, and when
// nodes are rolled back. Simulate plays a rollout with simulated nodes.
//
// It is pure: no I/O, no clock, no randomness, only the standard library. It must not know the Kubernetes API, or how nodes
// are watched and written. Input and result are values. Each plan derives the states of the nodes again; only Progress and
// the nodes' Observations carry over from one plan to the next.
package rollout
