// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestUnitFilesAreReadWithoutWaiting(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	assert.NoError(t, errors.Join(os.WriteFile(at("kubelet.service"), []byte("ExecStart=/opt/agent"), 0o600), os.Symlink("/dev/null", at("masked.service"))))
	names, err := ReferencedPrograms([]string{dir}, at("state"))
	assert.That(t, err == nil && names("/opt/agent") && !names("/opt/other"), "the programs of a unit beside a masked one: %v", err)
	assert.NoError(t, assert.Err(environment(nil, []EnvironmentFile{{Path: at("masked.service")}})), "an environment file that is a link to /dev/null")
	assert.NoError(t, syscall.Mkfifo(at("pipe.service"), 0o600))
	assert.ErrorHas(t, assert.Err(ReferencedPrograms([]string{dir}, at("state"))), "pipe.service is not a regular file", "the programs of a unit that is a pipe")
	assert.ErrorHas(t, assert.Err(environment(nil, []EnvironmentFile{{Path: at("pipe.service")}})), "pipe.service is not a regular file", "the variables of an environment file that is a pipe")
}
