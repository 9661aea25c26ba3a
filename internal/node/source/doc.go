// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package source is the agent's client of the API server: it reads the intended
// configuration (a NodeConfig, or a node's own ConfigMap), the Node with its
// conditions, its Lease and its pods, and writes status, conditions and Events.
//
// It must not know what a configuration does, whether the configuration works,
// or what the node runs: source returns what is intended, or why that is
// unknown. It makes no decisions. No method blocks its caller, except where its
// comment says so: callers read the newest answer, and a channel signals
// changes.
//
// The agent must stay small, so there is no typed clientset and no informer:
// only a REST client with a scheme of its own, objects with the few fields that
// the agent reads, and watches without a cache.
package source
