// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

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

func TestRBACTakesNodesOnly(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "rbac takes one NODE or more"},
		{[]string{"one", "Two"}, `node "Two": the name of the ConfigMap, kubelet-<node-name>, must be`},
		{[]string{""}, `node "": the name of the ConfigMap`},
		{[]string{"node/one"}, `node "node/one": the name of the ConfigMap`},
		{[]string{"one", "--config-namespace=A"}, `namespace "A": must be`},
		{[]string{"one", "--namespace=a"}, "unknown flag: --namespace; see evenkeel-agent rbac --help"},
	} {
		out, err := runs(t, append([]string{"rbac"}, c.args...)...)
		if wantUsage(t, err, c.want); out != "" {
			t.Errorf("rbac %q prints %q all the same", c.args, out)
		}
	}
}

func TestRBACPrintsTheSameForTheSameNodes(t *testing.T) {
	const want = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: "evenkeel-kubelet-one"
  namespace: "kube-system"
  labels:
    app.kubernetes.io/part-of: evenkeel
rules:
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: ["kubelet-one"]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: "evenkeel-kubelet-one"
  namespace: "kube-system"
  labels:
    app.kubernetes.io/part-of: evenkeel
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: "evenkeel-kubelet-one"
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: "system:node:one"
`
	both := want + strings.ReplaceAll(want, "one", "two")
	for _, args := range [][]string{{"rbac", "one", "two"}, {"rbac", "two", "one", "two"}, {"rbac", "two", "--config-namespace=kube-system", "one"}} {
		assert.Returns(t, both, args, "(- want, + got)")(runs(t, args...))
	}
}

func TestRBACQuotesNamesThatYAMLWouldTakeForSomethingElse(t *testing.T) {
	out := assert.Value(runs(t, "rbac", "10.0.0.1", "--config-namespace=1e3"))(t)
	var role struct {
		Metadata struct{ Name, Namespace string }
		Rules    []struct{ ResourceNames []string }
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(out, "---\n"), "---\n")
	if err := yaml.Unmarshal([]byte(first), &role); err != nil || role.Metadata.Namespace != "1e3" || role.Rules[0].ResourceNames[0] != "kubelet-10.0.0.1" {
		t.Errorf("it is read as %+v, error %v", role, err)
	}
}
