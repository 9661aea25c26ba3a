// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installer installs evenkeel's agent on many nodes, or uninstalls it,
// a few nodes at a time: it labels a node, so that a DaemonSet runs a pod
// there, and waits until the node's kubelet and agent are healthy again.
//
// Decide is pure: it chooses the next node, and whether to wait, to stop, or to
// restore a label. Pacer reads the nodes and carries out the decisions. The
// package must not know what a pod does on its node (internal/node/install
// does), and it neither asks for confirmation nor prints.
package installer
