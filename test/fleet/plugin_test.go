// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"os"
	"os/exec"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// plugin runs `kubectl evenkeel`, which must exit with code, and returns what
// it prints.
func (s *scenario) plugin(code int, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), root+"/bin/kubectl-evenkeel", args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.AdminKubeconfig())
	out, err := cmd.CombinedOutput()
	assert.Must(s.t, err == nil || errors.As(err, new(*exec.ExitError)), "%v", err)
	got := cmd.ProcessState.ExitCode()
	assert.That(s.t, got == code, "%q: exit code %d, want %d: %s", args, got, code, out)

	return string(out)
}
