// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/cmd/evenkeel-agent/inspect"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// evil is what a payload, a kubelet or a file can say: what a terminal obeys,
// what reorders words, and what is not seen.
const evil = "x\x1b[2J\u009b2J\u202ey\u2066z\u200b\u2028\U000e0041\x7f\x07\x9b"

// mainVar makes this test binary the program itself.
const mainVar = "EVENKEEL_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVar) != "" {
		main()
	}

	os.Exit(m.Run())
}

// says runs the program itself, and returns what it printed on both outputs.
func says(t *testing.T, stdin string, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), mainVar+"=1")
	cmd.Stdin = strings.NewReader(stdin)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err := cmd.Run()
	if ended := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}

	return both.String(), cmd.ProcessState.ExitCode()
}

// hostileKubelet is a program that says evil words for everything that it is
// asked.
func hostileKubelet(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet")
	script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = --version ]; then echo \"Kubernetes v1.36.3\"; exit 0; fi\n"+
		"cat >&2 <<'END'\nE0101 00:00:00.000000       1 run.go:72] \"command failed\" err=\"failed to run Kubelet: %s\"\nError: %s\nEND\nexit 1\n", evil, evil)
	assert.NoError(t, os.WriteFile(path, []byte(script), 0o755))

	return path
}

// hostileDir is the directory of an agent that runs, with evil words wherever
// the records have words.
func hostileDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	store := assert.Value(checkpoint.Open(atomicfile.OS{}, dir, "v1.36.3", nil))(t)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	state := trial.State{
		Current: trial.AdoptedConfig{Config: trial.Config{Revision: "u1", ConfigRevision: v1alpha1.ConfigRevision{Namespace: evil, Name: evil, UID: "u1", SHA256: strings.Repeat("a", 64)}, Checkpoint: strings.Repeat("b", 64)}, Since: at},
		Revoked: []types.UID{evil},
		Bad:     []trial.BadConfig{{Revision: "u2", ConfigRevision: v1alpha1.ConfigRevision{Namespace: evil, Name: evil, UID: "u2"}, Time: at, Reason: evil, Detail: evil, Failure: v1alpha1.ReasonValidationFailed}},
	}
	assert.NoError(t, store.Save(state))
	text := assert.Value(json.Marshal(agent.Configz{
		Source: agent.ConfigzSource{Kind: "remote", Revision: evil, ConfigRevision: v1alpha1.ConfigRevision{Namespace: evil, Name: evil, UID: "u1"}}, Error: evil, Component: evil,
		ConfigOK:  trial.Condition{Status: "False", Reason: evil, Message: evil, Cause: evil},
		Effective: component.Effective{"clusterDomain": evil, evil: evil}, Origins: map[string]component.Origin{"clusterDomain": evil},
		Differs:    []payload.Difference{{Field: evil, Value: evil, Local: evil}},
		Overridden: []string{evil},
		Resolved:   []v1alpha1.ResolvedValue{{Path: "maxPods", Value: "40", From: evil}},
	}))(t)
	assert.NoError(t, checkpoint.SetRunning(atomicfile.OS{}, dir, text))
	lock := assert.Value(lockfile.TryAcquire(checkpoint.AgentLock(dir)))(t)
	t.Cleanup(func() {
		assert.OK(t, lock.Release())
	})

	return dir
}

func TestNothingOfOthersReachesTheTerminalAsACommand(t *testing.T) {
	kubelet, dir := hostileKubelet(t), hostileDir(t)
	socket := filepath.Join(t.TempDir(), "probe")
	listener := assert.Value(net.Listen("unix", socket))(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, evil)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })

	config := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\n"
	for name, test := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"check":                         {config, []string{"check", "-", "--", kubelet}, `\x1b[2J`},
		"check of what is no YAML":      {evil, []string{"check", "-", "--", kubelet}, "rejected"},
		"check of another kind":         {fmt.Sprintf("apiVersion: v1\nkind: %q\n", evil), []string{"check", "-", "--", kubelet}, "rejected"},
		"check of an unknown field":     {config + fmt.Sprintf("%q: 1\n", evil), []string{"check", "-", "--", kubelet}, `\x1b[2J`},
		"check of a file not there":     {"", []string{"check", evil, "--", kubelet}, `\x1b[2J`},
		"flags":                         {"", []string{"flags", "--", kubelet, "--max-pods=1"}, `\x1b[2J`},
		"flags --newer-kubelet":         {"", []string{"flags", "--newer-kubelet", evil, "--", kubelet}, `\x1b[2J`},
		"status":                        {"", []string{"status", "--dynamic-config-dir", dir}, `\x1b[2J\u009b2J\u202ey\u2066z\u200b`},
		"status --effective":            {"", []string{"status", "--dynamic-config-dir", dir, "--effective=flat"}, "clusterDomain"},
		"status --effective=grouped":    {"", []string{"status", "--dynamic-config-dir", dir, "--effective=grouped"}, `\u202e`},
		"status with values of rules":   {"", []string{"status", "--dynamic-config-dir", dir}, "Resolved:         maxPods: 40, from "},
		"status with values in groups":  {"", []string{"status", "--dynamic-config-dir", dir, "--effective=grouped", "-o", "json"}, `"path": "resources.maxPods"`},
		"status -o json":                {"", []string{"status", "--dynamic-config-dir", dir, "-o", "json"}, `\u001b[2J\u009b2J\u202ey\u2066z\u200b\u2028\udb40\udc41\u007f`},
		"status of what is not there":   {"", []string{"status", "--dynamic-config-dir", dir + evil[:1] + "\x1b[2J"}, `\x1b[2J`},
		"forget":                        {"", []string{"forget", "--dynamic-config-dir", dir, "\x1b[2J"}, "["},
		"probe":                         {"", []string{"probe", "--socket", socket, "--ready"}, `\x1b[2J`},
		"a command that does not exist": {"", []string{"\x1b[2J\u202e"}, "unknown command"},
		"a flag that does not exist":    {"", []string{"--\x1b[2J\u202e"}, `\x1b[2J\u202e`},
		"a kubelet that does not exist": {"", []string{"--dynamic-config-dir", t.TempDir(), "--", "/\x1b[2J\u202e"}, "x1b[2J"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Must(t, !strings.ContainsRune(strings.Join(test.args, ""), 0), "an argument cannot have that")
			out, code := says(t, test.stdin, test.args...)
			assert.That(t, printable.Clean([]byte(out)), "it printed %q", out)
			assert.That(t, strings.Contains(out, test.want), "exit %d, %q; want in it %q", code, out, test.want)
		})
	}
}

// What programs read means what it meant.
func TestStatusAsJSONHasTheVeryWords(t *testing.T) {
	out, code := says(t, "", "status", "--dynamic-config-dir", hostileDir(t), "-o", "json")
	var s inspect.Summary
	err := json.Unmarshal([]byte(out), &s)
	assert.Must(t, err == nil && code == 0, "exit %d, %v: %s", code, err, out)
	want := strings.ToValidUTF8(evil, "\ufffd")
	assert.That(t, s.Running != nil && s.Running.Error == want && s.Bad[0].Detail == want, "got %+v, want %q", s, want)
}

// A kubelet quotes its command line and its local configuration in errors.
func TestTheSecretsOfAKubeletAreHiddenInMessages(t *testing.T) {
	dir := t.TempDir()
	kubelet, config := filepath.Join(dir, "kubelet"), filepath.Join(dir, "config.yaml")
	assert.NoError(t, os.WriteFile(kubelet, []byte(flaggedKubelet), 0o755))
	assert.NoError(t, os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodURLHeader: {X: [s.fromthefile]}\n"), 0o600))
	args := []string{kubelet, "--config=" + config, "--manifest-url=https://vault/s.inthepath", "--manifest-url-header=X-Vault-Token:s.0123456789"}
	assert.NoError(t, withHostKubelet(&options{given: func(string) bool { return false }}, args, func(host *agent.HostKubelet) error {
		got := secretsOf(host)("cannot read https://vault/s.inthepath with X-Vault-Token s.0123456789 and s.fromthefile")
		assert.Equal(t, got, "cannot read https://vault/masked with X-Vault-Token masked and masked", "message")
		return nil
	}))
}
