// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller is the rollout controller that evenkeel-controller runs:
// it watches rollouts, nodes, NodeConfigs and revisions, calls rollout.Plan,
// records the result in statuses, and writes the specs of NodeConfigs.
//
// It must not decide which node moves: rollout.Plan does. It must not know how
// an agent works: the two share only the NodeConfig.
package controller
