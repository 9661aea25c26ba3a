// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestJournal(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	unit := Unit{Name: "kubelet.service"}
	assert.Equal(t, Journal(t.Context(), unit), "", "without journalctl")
	script := "#!/bin/sh\necho \"$*\"\necho last words\necho\n"
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o755))
	got, want := Journal(t.Context(), unit), "--unit=kubelet.service --boot --lines=20 --no-pager --output=cat --quiet\nlast words"
	assert.That(t, got == want, "%q, want %q", got, want)
}
