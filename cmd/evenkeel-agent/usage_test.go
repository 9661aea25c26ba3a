// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestErrorsOfUsageNameTheFlagOrArgument(t *testing.T) {
	kubelet := filepath.Join(t.TempDir(), "kubelet") // nothing is started: usage comes first
	for words, args := range map[string][]string{
		"check takes one FILE (or -), then -- and the kubelet's command line":                           {"check", "-"},
		"forget takes one REVISION, and --dynamic-config-dir":                                           {"forget", "a-revision"},
		"--dynamic-config-dir is missing":                                                               {"status"},
		`-o must be json, not "yaml"`:                                                                   {"status", "--dynamic-config-dir=/nowhere", "-o", "yaml"},
		`--effective must be flat or grouped, not "yaml"`:                                               {"status", "--dynamic-config-dir=/nowhere", "--effective=yaml"},
		"the kubelet's command line is missing: evenkeel-agent [flags] -- /usr/bin/kubelet [its flags]": {"--dynamic-config-dir=/nowhere"},
		"unknown flag: --no-such-flag; see evenkeel-agent --help":                                       {"--no-such-flag", "--", kubelet},
		"unknown flag: --no-such-flag; see evenkeel-agent check --help":                                 {"check", "-", "--no-such-flag"},
		"--crash-loop-threshold must be 0 to 10, not 11":                                                {"--crash-loop-threshold=11", "--", kubelet},
		"--config-trial-duration must not be negative: -1s":                                             {"--config-trial-duration=-1s", "--", kubelet},
		"--health-timeout must be greater than 0, not 0s":                                               {"--health-timeout=0", "--", kubelet},
		`--startup-taint must be the key of a taint, not "a b"`:                                         {"--startup-taint=a b", "--", kubelet},
		`--local-invalid must be refuse or degrade, not "no"`:                                           {"--local-invalid=no", "--", kubelet},
		`--dynamic-config-dir must be an absolute path, not "here"`:                                     {"--dynamic-config-dir=here", "--", kubelet},
		"unknown flag: --config; see evenkeel-agent --help (the kubelet's command line goes after --)":  {"--dynamic-config-dir=/nowhere", kubelet, "--config=x"},
		"evenkeel-agent version takes no arguments":                                                     {"version", "please"},
		`--protected-fields: unknown field "bogus"`:                                                     {"--protected-fields=bogus", "--", kubelet},
	} {
		_, err := runs(t, args...)
		wantUsage(t, err, strings.TrimRight(words, " "))
	}
}

func TestTheHelpNamesTheExitCodes(t *testing.T) {
	for words, args := range map[string][]string{
		"Exit codes: 0 stopped as requested, 1 error, 3 usage, 4 the node's local":  nil,
		"5 another agent uses --dynamic-config-dir.":                                nil,
		"Exit codes: 0 accepted, 1 rejected or refused, 2 could not tell, 3 usage.": {"check"},
		"Exit codes: 0": {"status"},
		"Exit codes: ":  {"forget"},
	} {
		out, err := runs(t, append(args, "--help")...)
		assert.That(t, err == nil && strings.Contains(out, words), "%q: %v; it does not say %q but:\n%s", args, err, words, out)
	}
}
