// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// tool is the path of a pinned upstream program.
func tool(name string) string { return filepath.Join("..", "..", "bin", "tools", name) }

func TestAComponentsBinaryJudgesItsConfiguration(t *testing.T) {
	const kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	const proxy = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	const unknown = `rejected: strict decoding error: unknown field "bogus"`
	for name, c := range map[string]struct {
		binary, document string
		code             int
		want             string
	}{
		"an empty one of a kubelet":      {"kubelet=" + underTest.path, kubelet, 0, "kubelet " + underTest.version + ": accepted"},
		"an empty one of a kube-proxy":   {"kube-proxy=" + tool("kube-proxy"), proxy, 0, "kube-proxy v1.37.2: accepted"},
		"a kubelet's unknown field":      {"kubelet=" + underTest.path, kubelet + "bogus: 1\n", 1, unknown},
		"a kube-proxy's unknown field":   {"kube-proxy=" + tool("kube-proxy"), proxy + "bogus: 1\n", 1, unknown},
		"a kubelet that is a kube-proxy": {"kubelet=" + tool("kube-proxy"), kubelet, 2, "could not tell: the dry run does not work with this kubelet: unknown flag: --cert-dir"},
	} {
		t.Run(name, func(t *testing.T) {
			tmp := t.TempDir()
			cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", "kubectl-evenkeel"), "config", "validate", "-", "--component-binary", c.binary)
			cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
			cmd.Stdin = strings.NewReader(c.document)
			out, err := cmd.Output()
			assert.Must(t, err == nil || errors.As(err, new(*exec.ExitError)), "%v", err)
			assert.That(t, cmd.ProcessState.ExitCode() == c.code && strings.Contains(string(out), c.want), "exit code %d: %s", cmd.ProcessState.ExitCode(), out)
			left, err := os.ReadDir(tmp)
			assert.That(t, err == nil && len(left) == 0, "the command left %v, %v", left, err)
		})
	}
}
