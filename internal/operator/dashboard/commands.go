// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import "regexp"

// verbs are the subcommands of `kubectl evenkeel rollout` that texts about rollouts and nodes advise to use.
var verbs = []string{"abort", "diff", "approve", "resume", "retry", "status", "undo", "unfreeze"}

// plainRevision matches revisions of nodes that can be part of a command: a UID, or the name that the agent gives a ConfigMap.
var plainRevision = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$`)

// commandsOf returns the commands that texts about a rollout, a node, or a node of a rollout can advise to use. The page offers to copy
// only these: nodes write parts of the texts. A name may be empty.
func commandsOf(rollout, node string) []string {
	all := []string{"kubectl evenkeel nodes", "kubectl evenkeel nodes --problems", "kubectl evenkeel doctor"}
	if rollout != "" {
		for _, verb := range verbs {
			all = append(all, "kubectl evenkeel rollout "+verb+" "+rollout)
		}
		all = append(all, "kubectl evenkeel rollout status "+rollout+" -w", "kubectl evenkeel rollout abort "+rollout+" --rollback",
			"kubectl evenkeel nodes --rollout "+rollout+" --failed")
	}
	if node != "" {
		all = append(all, "kubectl evenkeel node "+node, "kubectl evenkeel assign "+node+" -f FILE")
	}
	if rollout != "" && node != "" {
		all = append(all, "kubectl evenkeel rollout retry "+rollout+" "+node)
	}
	return all
}
