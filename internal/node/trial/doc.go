// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trial is the pure decision which kubelet configuration a node runs:
// adopting an assigned configuration on trial, promoting it to last-known-good,
// and rolling it back. It words ConfigOK, in the vocabulary of the API. Rules
// about when a configuration counts as healthy, bad or last-known-good belong
// here.
//
// Decide must not know a clock, file, network or process. The agent gathers
// what can be observed, calls Decide, saves Next, carries out Action and
// reports Status. After a crash at any point the agent observes and decides
// again. The rules are those of the proposal "Dynamic Kubelet Configuration"
// (2017), sections "Robust Kubelet behavior" and "Reporting Configuration
// Status", with the differences that docs/proposals/differences.md lists.
package trial
