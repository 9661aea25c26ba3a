// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// bench is a host with the agent's program and some components', but no node.
type bench struct {
	t   *testing.T
	tmp string // must be empty when the test ends
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t, t.TempDir()}
	t.Cleanup(func() {
		left, _ := os.ReadDir(b.tmp)
		assert.That(t, len(left) == 0, "the commands left %v", left)
	})
	return b
}

// tool is the path of a pinned upstream program.
func tool(name string) string { return filepath.Join("..", "..", "bin", "tools", name) }

// runs runs one of the agent's commands, which must exit with code, and say the
// words on the standard error. It returns what it printed.
func (b *bench) runs(code int, stdin, words string, args ...string) string {
	b.t.Helper()
	program := "evenkeel-agent"
	if args[0] == "config" {
		program = "kubectl-evenkeel"
	}
	cmd := exec.CommandContext(b.t.Context(), filepath.Join("..", "..", "bin", program), args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+b.tmp)
	cmd.Stdin = strings.NewReader(stdin)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		b.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(said.String(), words) || words == "" && said.Len() > 0 {
		b.t.Errorf("%q: exit code %d, %q; want %d, %q", args, got, said.String(), code, words)
	}
	return out.String()
}

const proxyHeader = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

func TestDefaultsAreAConfigurationOfTheComponentThatPrintedThem(t *testing.T) {
	b := newBench(t)
	for name, c := range map[string]struct{ path, begin string }{
		"kubelet": {underTest.path, "# The defaults of kubelet " + underTest.version + ", as it printed them.\n" +
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\naddress: 0.0.0.0\n"},
		"kube-proxy": {tool("kube-proxy"), "# The defaults of kube-proxy v1.37.2, as it printed them.\n" + proxyHeader + "bindAddress: 0.0.0.0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{t, b.tmp}
			document := b.runs(0, "", "", "defaults", "--component="+name, "--", c.path)
			assert.That(t, strings.HasPrefix(document, c.begin), "it begins %.300q", document)
			var fields map[string]any
			assert.NoError(t, yaml.UnmarshalStrict([]byte(document), &fields))
			assert.That(t, !strings.Contains(document, b.tmp), "there is something of the dry run in it:\n%s", document)
			out := b.runs(0, document, "", "config", "validate", "-", "--component-binary", name+"="+c.path)
			assert.That(t, strings.Contains(out, "accepted"), "it said %q", out)
		})
	}
	if document := b.runs(0, "", "", "defaults", "--", underTest.path); !strings.Contains(document, "\nkind: KubeletConfiguration\n") {
		t.Errorf("without a name it printed %.300q", document)
	}
	b.runs(2, "", "evenkeel-agent: could not tell: cannot read the defaults of the kubelet: the dry run does not work with this kubelet: unknown flag: --cert-dir",
		"defaults", "--", tool("kube-proxy"))
}
