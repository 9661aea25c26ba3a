// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeadm plans, validates and stores the component configurations
// (KubeletConfiguration, KubeProxyConfiguration) that kubeadm keeps in
// ConfigMaps of kube-system, as the proposal "kubeadm component config
// management" describes. Signatures tell generated configurations from those of
// a user; generated ones have no defaults; the target version's own binary
// validates what an upgrade would leave in place; and an undo record makes it
// possible to restore what was there before.
//
// The package must not know the fields of a component, except those that it
// generates: it sets no defaults, validates nothing and converts nothing
// itself. The component's binary does that (package component).
//
// The steps are: Gather reads the cluster and ParseFile the user's file, Decide
// says what to store, MakePlan has it validated, Store writes it, and Undo and
// Restore take it back.
package kubeadm
