// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

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

func TestWhatIsWrongWithTheSourceOfConfigurationIsAUsageError(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--config-source=file"}, `--config-source must be nodeconfig or configmap, not "file"`},
		{[]string{"--config-namespace=kube-system"}, "--config-namespace is for --config-source=configmap only: a NodeConfig names the namespace itself"},
		{[]string{"--config-source=nodeconfig", "--config-namespace=a"}, "--config-namespace is for --config-source=configmap only: a NodeConfig names the namespace itself"},
		{[]string{"--config-source=configmap", "--config-namespace=a.b"}, `--config-source=configmap: namespace "a.b": must be at most 63 lower-case letters, digits and dashes`},
		{[]string{"--config-source=configmap", "--config-namespace="}, `--config-source=configmap: namespace "": must be`},
		{[]string{"--config-source=configmap", "--node-name=a_b"}, `--config-source=configmap: node "a_b": the name of the ConfigMap, kubelet-<node-name>, must be at most 253 lower-case letters, digits, dashes and dots`},
	} {
		_, err := runs(t, append(c.args, "--dynamic-config-dir="+dir, "--", "/not/there")...)
		wantUsage(t, err, c.want)
	}
}

func wantUsage(t *testing.T, err error, words string) {
	t.Helper()
	var coded *program.Exit
	assert.That(t, errors.As(err, &coded) && coded.Code == program.ExitUsage && strings.HasPrefix(err.Error(), words),
		"the error is %v, want a usage error %q", err, words)
}
