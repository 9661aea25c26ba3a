// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notify sends the states of rollouts that people wait for to webhooks,
// as CloudEvents: halted, blocked, awaiting approval, complete and degraded.
//
// It must not decide anything about a rollout, and nothing waits for it:
// Notifier.Rollout only adds to a queue of limited length. Receivers are chosen
// by the controller's flags, never by a rollout.
package notify
