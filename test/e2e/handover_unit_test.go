package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheUnitOfTheBootstrapKubeletIsOneThatSystemdTakes(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	raw, err := os.ReadFile("../../config/systemd/evenkeel-bootstrap.service")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	agent := filepath.Join(dir, "evenkeel-agent")
	if err := os.Symlink("/bin/true", agent); err != nil { // systemd wants a program that is there
		t.Fatal(err)
	}
	unit := strings.Replace(string(raw), "/usr/local/bin/evenkeel-agent", agent, 1)
	if unit == string(raw) {
		t.Fatal("it does not run /usr/local/bin/evenkeel-agent")
	}
	if err := os.WriteFile(filepath.Join(dir, "evenkeel-bootstrap.service"), []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "evenkeel-bootstrap.service")
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":") // the default ones follow
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	for _, setting := range []string{
		"Type=exec", "NotifyAccess=main", "KillMode=mixed", "Restart=always", "RestartSec=2", "StartLimitIntervalSec=0", "Conflicts=kubelet.service",
		"TimeoutStopSec=60", "RuntimeDirectory=evenkeel evenkeel/lock evenkeel/probe", "RuntimeDirectoryPreserve=yes",
	} {
		if !slices.Contains(strings.Split(string(raw), "\n"), setting) {
			t.Errorf("there is no %s", setting)
		}
	}
}

func TestTheCommandLineOfTheBootstrapUnitIsOneThatTheAgentTakes(t *testing.T) {
	t.Parallel()
	n := newNode(t, "unitflags")
	raw, err := os.ReadFile("../../config/systemd/evenkeel-bootstrap.service")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(strings.ReplaceAll(string(raw), "\\\n", ""), "\nExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	flags, kubelet, found := strings.Cut(line, " -- ")
	if !found || !strings.HasPrefix(strings.TrimSpace(kubelet), "/usr/bin/kubelet ") {
		t.Fatalf("its command line is %q", line)
	}
	// The kubelet is not there: nothing is touched, and all that is looked at before it was right.
	args := append(strings.Fields(flags)[1:], "--probe-socket=", "--", filepath.Join(t.TempDir(), "kubelet"))
	n.runs(1, "", args, "there is no kubelet at ")
}
