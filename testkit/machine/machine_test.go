package machine_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/machine"
)

func TestAMachineRunsItsOwnUnitsAndLeavesNothing(t *testing.T) {
	dir, err := os.MkdirTemp("", "evkm-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err := machine.Start(t.Context(), dir, machine.Inside)
	if errors.Is(err, machine.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Stop() }()
	if err := os.WriteFile(m.Path(machine.Etc+"/a.service"), []byte("[Service]\nExecStart=/bin/sleep inf\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Systemctl(t.Context(), "start", "a"); err != nil {
		t.Fatal(err)
	}
	out, err := m.Systemctl(t.Context(), "show", "a", "--property=ActiveState,FragmentPath")
	if want := "ActiveState=active\nFragmentPath=" + machine.Etc + "/a.service\n"; err != nil || sorted(out) != sorted(want) {
		t.Errorf("systemctl show says %q, %v, want %q", out, err, want)
	}
	if _, err := os.Stat(machine.Etc + "/a.service"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unit is outside of the machine too: %v", err)
	}
	init, err := os.ReadFile(m.Proc() + "/1/comm")
	if err != nil || string(init) != "systemd\n" {
		t.Errorf("its first process is %q, %v", init, err)
	}
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
	for _, h := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"} {
		entries, _ := os.ReadDir(h)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "evkmachine-") && strings.HasSuffix(e.Name(), dir[strings.LastIndex(dir, "/")+1:]) {
				t.Errorf("it left the cgroup %s/%s", h, e.Name())
			}
		}
	}
}

func sorted(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) == 2 && lines[0] > lines[1] {
		lines[0], lines[1] = lines[1], lines[0]
	}
	return strings.Join(lines, "\n")
}
