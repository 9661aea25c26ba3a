// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulation runs whole clusters in virtual time: the real agents with
// their checkpoints on disks that crash, and the real controllers, with
// simulated kubelets and a simulated API server between them. All that happens
// in a history follows from its seed. Checks run all the time. A history that
// fails is made shorter automatically, and printed with the command that runs
// it again.
//
//	go test ./test/simulation                          # fixed seeds, then new ones for the budget
//	go test ./test/simulation -seed 4711 -v            # one history, with its trace
//	go test ./test/simulation -budget 8h -first 1 -v   # many, from a seed on
package simulation
