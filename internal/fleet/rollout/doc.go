// Package rollout decides how one configuration reaches a fleet: which nodes move next, when to stop, and when to go
// back.
//
// It is pure: no I/O, no clock, no randomness, and nothing but the standard library. It must not know the Kubernetes
// API, how nodes are watched or how they are written to. What it is told is values, and so is what it answers. Node
// states are derived afresh from what is observed; what a rollout remembers is its Progress, and nothing else.
package rollout
