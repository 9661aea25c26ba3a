// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// flagged returns the components of a command line.
func flagged(t *testing.T, args ...string) componentFlags {
	t.Helper()
	var f componentFlags
	cmd := &cobra.Command{}
	f.add(cmd)
	assert.NoError(t, cmd.ParseFlags(args))

	return f
}

func TestComponentsLeaveNoTemporaryFiles(t *testing.T) {
	localcluster.SkipShort(t)
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	f := flagged(t, "--component-binary", "kubelet=../../../bin/tools/kubelet", "--component-binary=kube-proxy=../../../bin/tools/kube-proxy")
	all, done, err := f.open(io.Discard)
	assert.NoError(t, err)
	for name, config := range map[string]string{
		"kubelet":    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
		"kube-proxy": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n",
	} {
		if all[name] == nil || all[name].Name() != name {
			t.Errorf("of %s there is %v", name, all[name])
			continue
		}

		v := all[name].Validate(t.Context(), []byte(config))
		assert.That(t, v.Outcome == component.Accepted, "%s: %s: %s", name, v.Outcome, v.Message)
	}

	left, err := os.ReadDir(scratch)
	assert.That(t, err == nil && len(left) == 1, "they use %v, %v", left, err)

	done()
	left, err = os.ReadDir(scratch)
	assert.That(t, err == nil && len(left) == 0, "left are %v, %v", left, err)
}

func TestWithoutComponentsThereIsNoTemporaryDirectory(t *testing.T) {
	t.Setenv("TMPDIR", "/nowhere")
	f := flagged(t)
	all, done, err := f.open(io.Discard)
	done()
	assert.That(t, len(all) == 0 && err == nil, "%v, %v", all, err)
}

func TestAMissingComponentIsAnError(t *testing.T) {
	localcluster.SkipShort(t)
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	f := flagged(t, "--component-binary=kube-proxy=../../../bin/tools/kube-proxy", "--component-binary=kubelet=/nowhere/kubelet")
	all, done, err := f.open(io.Discard)
	done()
	want := "--component-binary=kubelet=/nowhere/kubelet: there is no kubelet at /nowhere/kubelet: file does not exist"
	assert.That(t, all == nil && err != nil && err.Error() == want, "%v, %v, want %s", all, err, want)
	left, err := filepath.Glob(scratch + "/*")
	assert.That(t, err == nil && len(left) == 0, "left are %v, %v", left, err)

	t.Setenv("TMPDIR", "/nowhere")
	if _, done, err = f.open(io.Discard); err == nil {
		t.Error("there is no directory for throw-away files, and no error")
	}

	done()
}
