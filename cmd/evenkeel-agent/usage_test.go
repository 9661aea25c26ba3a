// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/handover"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// runs runs a command line, and returns what it prints.
func runs(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := command()
	c.SetArgs(args)
	c.SetOut(&out)
	err := c.ExecuteContext(t.Context())

	return out.String(), err
}

func wantUsage(t *testing.T, err error, words string) {
	t.Helper()
	var coded *program.Exit
	assert.That(t, errors.As(err, &coded) && coded.Code == program.ExitUsage && strings.HasPrefix(err.Error(), words),
		"the error is %v, want a usage error %q", err, words)
}

func TestWrongUsesAreNamed(t *testing.T) {
	t.Setenv("EVENKEEL_PROBE_SOCKET", "")
	dir := t.TempDir()
	// agent is a command line of the agent with these flags. Nothing is started:
	// usage comes first.
	agent := func(flags ...string) []string { return append(flags, "--dynamic-config-dir="+dir, "--", "/not/there") }
	kubelet := func(flags ...string) []string { return append(agent(), flags...) }
	const (
		forConfigMap = "--config-namespace is for --config-source=configmap only: a NodeConfig names the namespace itself"
		noTrial      = "--give-up-after (2m0s) must be longer than --health-timeout (2m0s): a trial must be able to roll back first"
		apply        = "flags --apply takes only --unit, --timeout, --allow-pod-loss and --bin-dir: the kubelet is that of the unit"
		forApply     = "--unit, --timeout, --allow-pod-loss and --bin-dir are for flags --apply"
		noKubelet    = "flags takes only -- and the kubelet's command line"
		noAgentFlag  = `install takes no arguments, got "kubelet" (flags of the agent go after --)`
		selfHosted   = "install does not support --lock-file and --bootstrap, which are for nodes with a self-hosted kubelet"
		socket       = "--probe-socket must be an absolute path of at most 107 bytes, not "
	)
	for _, c := range []struct {
		words string
		args  []string
	}{
		{"the kubelet's command line is missing: evenkeel-agent [flags] -- /usr/bin/kubelet [its flags]", []string{"--dynamic-config-dir=/nowhere"}},
		{"unknown flag: --no-such-flag; see evenkeel-agent --help", agent("--no-such-flag")},
		{"unknown flag: --config; see evenkeel-agent --help (the kubelet's command line goes after --)", []string{"/kubelet", "--config=x"}},
		{"--crash-loop-threshold must be 0 to 10, not 11", agent("--crash-loop-threshold=11")},
		{"--config-trial-duration must not be negative: -1s", agent("--config-trial-duration=-1s")},
		{"--health-timeout must be greater than 0, not 0s", agent("--health-timeout=0")},
		{noTrial, agent("--give-up-after=2m")},
		{`--startup-taint must be the key of a taint, not "a b"`, agent("--startup-taint=a b")},
		{`--local-invalid must be refuse or degrade, not "no"`, agent("--local-invalid=no")},
		{`--dynamic-config-dir must be an absolute path, not "here"`, []string{"--dynamic-config-dir=here", "--", "/not/there"}},
		{`--protected-fields: unknown field "bogus"`, agent("--protected-fields=bogus")},
		{socket + `"probe.sock"`, agent("--probe-socket=probe.sock")},
		{socket + `"/xxx`, agent("--probe-socket=/" + strings.Repeat("x", 107))},

		{`--config-source must be nodeconfig or configmap, not "file"`, agent("--config-source=file")},
		{forConfigMap, agent("--config-namespace=kube-system")},
		{forConfigMap, agent("--config-source=nodeconfig", "--config-namespace=a")},
		{`--config-source=configmap: namespace "a.b": must be at most 63 lower-case letters, digits and dashes`,
			agent("--config-source=configmap", "--config-namespace=a.b")},
		{`--config-source=configmap: namespace "": must be`, agent("--config-source=configmap", "--config-namespace=")},
		{`--config-source=configmap: node "a_b": the name of the ConfigMap, kubelet-<node-name>, must be at most 253 lower-case letters, digits, ` +
			"dashes and dots", agent("--config-source=configmap", "--node-name=a_b")},

		{"--bootstrap needs --lock-file: without a lock no process could request the node", agent("--bootstrap")},
		{"--bootstrap needs --lock-file", agent("--bootstrap", "--lock-file=")},
		{"the kubelet's --exit-on-lock-contention needs --lock-file", kubelet("--exit-on-lock-contention")},
		{`--lock-file must be an absolute path, not "kubelet.lock"`, agent("--lock-file=kubelet.lock")},
		{"--lock-file is given twice, to the agent and to its kubelet (/run/a): remove one of them",
			append(agent("--lock-file=/run/a"), "--lock-file=/run/a")},
		{"--lock-file is given twice", append(agent("--lock-file=/run/a"), "--lock-file=/run/b")},
		{"--lock-file " + dir + "/kubelet.lock is the agent's own lock file for its kubelet: choose another path",
			agent("--lock-file=" + dir + "/kubelet.lock")},
		{"--lock-file " + dir + "/agent.lock is in --dynamic-config-dir, which only the lock's holder may write to: choose another directory",
			agent("--lock-file=" + dir + "/agent.lock")},
		{"--lock-file " + dir + "//current is in --dynamic-config-dir", agent("--lock-file=" + dir + "//current")},
		{"the kubelet's --lock-file " + dir + "/agent.lock is in --dynamic-config-dir",
			kubelet("--lock-file=" + dir + "/../" + filepath.Base(dir) + "/agent.lock")},

		{"check takes one FILE (or -), then -- and the kubelet's command line", []string{"check", "-"}},
		{"unknown flag: --no-such-flag; see evenkeel-agent check --help", []string{"check", "-", "--no-such-flag"}},
		{"forget takes one REVISION, and --dynamic-config-dir", []string{"forget", "a-revision"}},
		{"--dynamic-config-dir is missing", []string{"status"}},
		{`-o must be json, not "yaml"`, []string{"status", "--dynamic-config-dir=/nowhere", "-o", "yaml"}},
		{`--effective must be flat or grouped, not "yaml"`, []string{"status", "--dynamic-config-dir=/nowhere", "--effective=yaml"}},
		{"evenkeel-agent version takes no arguments", []string{"version", "please"}},
		{"--socket is missing, and EVENKEEL_PROBE_SOCKET is not set: use the agent's --probe-socket", []string{"probe"}},
		{"evenkeel-agent probe takes no arguments", []string{"probe", "--socket=/s", "more"}},

		{noAgentFlag, []string{"install", "kubelet"}},
		{noAgentFlag, []string{"install", "kubelet", "--", "--listen="}},
		{"--timeout must be greater than 0, not 0s", []string{"install", "--timeout=0s"}},
		{"flags of the agent: unknown flag: --no-such-flag", []string{"install", "--", "--no-such-flag"}},
		{`flags of the agent: "/usr/bin/kubelet" is not a flag`, []string{"install", "--", "--listen=", "/usr/bin/kubelet"}},
		{"flags of the agent: " + selfHosted, []string{"install", "--", "--lock-file=/run/lock/x"}},
		{`--dynamic-config-dir must be an absolute path, not "relative"`, []string{"install", "--", "--dynamic-config-dir=relative"}},
		{"--protected-fields: ", []string{"install", "--", "--protected-fields=+nothing.such"}},
		{"unknown flag: --force; see evenkeel-agent install --help", []string{"install", "--force"}},
		{"evenkeel-agent uninstall takes no arguments", []string{"uninstall", "kubelet"}},
		{"--timeout must be greater than 0, not -1s", []string{"uninstall", "--timeout=-1s"}},

		{noKubelet, []string{"flags"}},
		{noKubelet, []string{"flags", "--"}},
		{noKubelet, []string{"flags", "kubelet"}},
		{noKubelet, []string{"flags", "kubelet", "--", "/usr/bin/kubelet"}},
		{"unknown flag: --max-pods; see evenkeel-agent flags --help", []string{"flags", "/usr/bin/kubelet", "--max-pods=250"}},
		{apply, []string{"flags", "--apply", "--", "/usr/bin/kubelet"}},
		{apply, []string{"flags", "--apply", "--newer-kubelet=x"}},
		{apply, []string{"flags", "--apply", "--init-config-dir=x"}},
		{forApply, []string{"flags", "--unit=x", "--", "/usr/bin/kubelet"}},
		{forApply, []string{"flags", "--timeout=1s", "--", "/usr/bin/kubelet"}},
		{forApply, []string{"flags", "--allow-pod-loss", "--", "/usr/bin/kubelet"}},
		{forApply, []string{"flags", "--bin-dir=/x", "--", "/usr/bin/kubelet"}},
		{"--timeout must be greater than 0, not 0s", []string{"flags", "--apply", "--timeout=0s"}},
	} {
		_, err := runs(t, c.args...)
		wantUsage(t, err, c.words)
	}

	left, err := filepath.Glob(dir + "/*")
	assert.That(t, err == nil && len(left) == 0, "in the directory are %q, %v", left, err)
}

func TestProbeAsksTheSocketOfItsVariable(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "probe.sock")
	t.Setenv("EVENKEEL_PROBE_SOCKET", socket)
	assert.ErrorHas(t, assert.Err(runs(t, "probe")), "no agent answers on "+socket+": ")
}

func TestANodeIsGivenUpAfterATrialHadItsTime(t *testing.T) {
	for flag, want := range map[string]time.Duration{
		"--node-name=n": 5 * time.Minute, "--health-timeout=10m": 20 * time.Minute, "--give-up-after=0": 0, "--give-up-after=3m": 3 * time.Minute,
	} {
		o, f := &options{}, pflag.NewFlagSet("agent", pflag.ContinueOnError)
		o.bind(f)
		assert.NoError(t, f.Parse([]string{flag}))
		assert.NoError(t, o.check())
		assert.Equal(t, o.giveUpAfter(), want, flag)
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

func TestEachFailureToRunTheNodeHasAnExitCode(t *testing.T) {
	cause := errors.New("the cause")
	for failure, want := range map[handover.Failure]int{handover.DirectoryHeld: 5, handover.Unusable: 7, handover.Lost: 8, handover.GaveUp: 9} {
		err := exitCode(fmt.Errorf("it ends: %w", &handover.Error{Failure: failure, Err: cause}))
		var coded *program.Exit
		assert.That(t, errors.As(err, &coded) && coded.Code == want && err.Error() == "it ends: the cause",
			"failure %d: %v, want exit code %d", failure, err, want)
	}

	for _, err := range []error{nil, cause} {
		assert.Equal(t, exitCode(err), err)
	}
}

// The installer of nodes reads the exit codes from pods.
func TestAUsageErrorEndsWithTheExitCodeThatTheInstallerKnows(t *testing.T) {
	assert.Equal(t, program.ExitUsage, v1alpha1.InstallExitUsage, "a usage error ends with")
}
