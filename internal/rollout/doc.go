// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout decides how a configuration rolls out to a fleet: which nodes
// get it next, when the rollout stops, and when nodes are rolled back. Simulate
// plays a rollout with simulated nodes.
//
// It is pure: no I/O, no clock, no client and no randomness. It speaks the
// types of the API: a plan takes the spec and the status of a rollout, its
// nodes and a time, and returns the next status and the moves. It must not know
// how nodes are watched and written. Input and result are values. Each plan
// derives the states of the nodes again; only the status, GatesSince and the
// nodes' Observations carry over from one plan to the next.
package rollout
