// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// tools makes a directory of the real tools, in which some are scripts instead.
func tools(t *testing.T, scripts map[string]string) string {
	t.Helper()
	module, err := ModuleRoot()
	assert.NoError(t, err)
	real, dir := filepath.Join(module, "bin", "tools"), t.TempDir()
	for _, tool := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"} {
		if script, ok := scripts[tool]; ok {
			script = "#!/bin/sh\nreal=" + filepath.Join(real, tool) + "\n" + script + "\n"
			err = os.WriteFile(filepath.Join(dir, tool), []byte(script), 0o755)
		} else {
			err = os.Symlink(filepath.Join(real, tool), filepath.Join(dir, tool))
		}

		assert.NoError(t, err)
	}

	return dir
}

func TestAProgramThatStopsAtStartIsReportedWithItsLogAndNothingRuns(t *testing.T) {
	for _, tool := range []string{"etcd", "kube-apiserver"} {
		dir := filepath.Join(t.TempDir(), "cluster")
		_, err := Start(t.Context(), Options{Dir: dir, Tools: tools(t, map[string]string{tool: "echo 'I am broken'; exit 7"})})
		assert.Must(t, err != nil, "a broken %s: started", tool)
		for _, want := range []string{tool + " stopped", "exit status 7", "I am broken"} {
			assert.That(t, strings.Contains(err.Error(), want), "a broken %s: %v, want %q in it", tool, err, want)
		}

		assert.OK(t, traces(dir, "none", "none"), "a broken", tool)
	}
}

func TestATakenPortIsTriedOnceMoreWithAnother(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	script := fmt.Sprintf(`[ -e %[1]s ] && exec "$real" "$@"; echo "$@" >%[1]s; echo 'bind: address already in use'; exit 1`, mark)
	c := startCluster(t, Options{Tools: tools(t, map[string]string{"kube-apiserver": script})})
	refused, err := os.ReadFile(mark)
	assert.NoError(t, err)
	if strings.Contains(string(refused), fmt.Sprintf("--secure-port=%d ", c.apiPort)) {
		t.Errorf("port %d was tried again", c.apiPort)
	}

	assert.That(t, strings.Contains(string(refused), "--secure-port="), "the first try: %s", refused)
	_, err = Start(t.Context(), Options{Tools: tools(t, map[string]string{"etcd": "echo 'bind: address already in use'; exit 1"})})
	assert.Is(t, err, errPortTaken, "when all ports are taken")
}
