// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestAMistypedCommandWithAFlagOfThatCommandIsNamed(t *testing.T) {
	for line, want := range map[string]string{
		"asign worker-1 -f x.yaml":               `unknown command "asign" for "kubectl evenkeel" (did you mean assign?)`,
		"asign -f x.yaml":                        `unknown command "asign" for "kubectl evenkeel" (did you mean assign?)`,
		"rolout status workers --wait-for=step=": `unknown command "rolout" for "kubectl evenkeel" (did you mean rollout?)`,
		"rollout staus workers --wait-for=x":     `unknown command "staus" for "kubectl evenkeel rollout" (did you mean status?)`,
		"--nonsense asign":                       "unknown flag: --nonsense",
	} {
		got := newAPI(t).Run(strings.Fields(line)...)
		assert.That(t, got.Code == 1 && strings.Contains(got.Err, want), "%s: exit %d, %s", line, got.Code, got.Err)
	}
}

func TestTheHelpGroupsCommands(t *testing.T) {
	for line, want := range map[string]string{
		"--help":        "Compare and migrate configurations:\n  component ",
		"config --help": "Advanced: convert, and migrate kubeadm's configurations:\n  convert ",
	} {
		got := newAPI(t).Run(strings.Fields(line)...)
		assert.That(t, strings.Contains(got.Out, want) && strings.Contains(got.Out, "  component ") == (line == "--help"), "%s shows\n%s", line, got.Out)
	}
}

func TestEveryCommandThatAsksTakesTheShortFlag(t *testing.T) {
	for _, line := range []string{"push", "assign", "install", "uninstall", "component apply", "component undo", "config upload"} {
		got := newAPI(t).Run(append(strings.Fields(line), "--help")...)
		assert.That(t, strings.Contains(got.Out, "-y, --yes"), "%s has no -y:\n%s", line, got.Out)
	}
}

func TestRevisionsToReturnToAreCompleted(t *testing.T) {
	api := newAPI(t)
	cm := api.AddRevision("workers", 3, "maxPods: 1\n")
	api.AddRolledOut("workers", func(r *v1alpha1.NodeConfigRollout) {
		r.Status.History = []v1alpha1.RolloutOutcome{{Revision: 4, Outcome: v1alpha1.OutcomeHalted}, fakeapi.SucceededAs(3, cm)}
	})
	got := api.Run("__complete", "rollout", "undo", "workers", "--to-revision", "")
	assert.That(t, strings.HasPrefix(got.Out, "4\tHalted\n3\tSucceeded\n"), "it completes\n%s", got.Out)
	got = api.Run("__complete", "rollout", "undo", "--to-revision", "")
	assert.That(t, strings.HasPrefix(got.Out, ":"), "without a name it completes\n%s", got.Out)
}

func TestAForbiddenCommandNamesTheRoleThatItNeeds(t *testing.T) {
	for line, want := range map[string]string{
		"rollout list":          "evenkeel-view",
		"rollout pause workers": "evenkeel-operator", // the first request, a read, is part of evenkeel-view too
		"rollout plan workers":  "evenkeel-operator",
		"nodes":                 "evenkeel-view",
	} {
		api := newAPI(t)
		api.Forbid("*", "NodeConfigRollout", "NodeConfig", "Node")
		got := api.Run(strings.Fields(line)...)
		assert.That(t, strings.Contains(got.Err, "--clusterrole="+want+" --user=nobody"), "%s names another role than %s:\n%s", line, want, got.Err)
	}

	file := fakeapi.File(t, fakeapi.Header+"maxPods: 50\n")
	api := newAPI(t)
	api.Forbid("get", "NodeConfigRollout")
	got := api.Run("push", "workers", "-f", file, "--all-nodes", "--yes")
	assert.That(t, strings.Contains(got.Err, "--role=evenkeel-operator --user=nobody"), "push names\n%s", got.Err)
}

func TestCommandsJudgeTheFieldsOfTheirFile(t *testing.T) {
	const (
		types     = "systemReserved: {cpu: 1}\n"
		protected = "authentication: {anonymous: {enabled: true}}\n"
	)
	for _, line := range []string{"push workers --all-nodes --drop-in", "preflight --all-nodes --drop-in", "assign a --drop-in"} {
		run := func(fields string, more ...string) fakeapi.Result {
			api := newAPI(t)
			api.AddAgent("a", "pool", nil, nil)
			return api.Run(slices.Concat(strings.Fields(line), []string{"-f", fakeapi.File(t, fields)}, more)...)
		}
		got := run("maxPods: 1\nmaxPods: 2\n")
		assert.That(t, got.Code == 1 && strings.Contains(got.Err, "duplicate key") && !strings.Contains(got.Err, "kubelet-dropin"),
			"%s: exit %d, %s", line, got.Code, got.Err)
		run(fakeapi.Header+types).WantError(t, "systemReserved.cpu must be text, in quotes, not 1; nothing was")
		if !strings.HasPrefix(line, "preflight") { // which has no dry run
			run(fakeapi.Header+protected, "--dry-run").Want(t, 0, nil, "note: authentication.anonymous.enabled is a protected field: a node refuses")
		}
	}
}
