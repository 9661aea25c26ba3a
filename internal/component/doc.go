// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package component finds the binary of a Kubernetes node component (kubelet,
// kube-proxy), in a file or in a container image, and runs it to validate a
// configuration (the dry run) and to read its version.
//
// For the kubelet that the agent runs, the package also parses and builds the
// command line, checks a configuration with the node's own flags and drop-ins,
// compares it with the local configuration, and reads the health endpoint,
// /configz and the state files.
//
// It must not know where a configuration comes from or which one should run,
// and it never starts a component beyond a dry run.
package component
