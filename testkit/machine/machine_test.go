// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/machine"
)

func TestAMachineRunsItsOwnUnitsAndLeavesNothing(t *testing.T) {
	dir := assert.Value(os.MkdirTemp("", "evkm-"))(t)
	defer os.RemoveAll(dir)
	m, err := machine.Start(t.Context(), dir, machine.Inside)
	if errors.Is(err, machine.ErrUnsupported) {
		t.Skip(err)
	}

	assert.NoError(t, err)
	defer func() { _ = m.Stop() }()
	assert.NoError(t, os.WriteFile(m.Path(machine.Etc+"/a.service"), []byte("[Service]\nExecStart=/bin/sleep inf\n"), 0o644))
	assert.NoError(t, assert.Err(m.Systemctl(t.Context(), "start", "a")))
	out, err := m.Systemctl(t.Context(), "show", "a", "--property=ActiveState,FragmentPath")
	want := "ActiveState=active\nFragmentPath=" + machine.Etc + "/a.service\n"
	assert.That(t, err == nil && sorted(out) == sorted(want), "systemctl show says %q, %v, want %q", out, err, want)
	assert.Is(t, assert.Err(os.Stat(machine.Etc+"/a.service")), os.ErrNotExist, "the unit is outside of the machine too")
	init, err := os.ReadFile(m.Proc() + "/1/comm")
	assert.That(t, err == nil && string(init) == "systemd\n", "its first process is %q, %v", init, err)
	assert.OK(t, m.Stop())
	for _, h := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"} {
		entries, _ := os.ReadDir(h)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "evkmachine-") && strings.HasSuffix(e.Name(), dir[strings.LastIndex(dir, "/")+1:]) {
				t.Errorf("it left the cgroup %s/%s", h, e.Name())
			}
		}
	}
}

func sorted(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}
