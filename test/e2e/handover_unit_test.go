package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSystemdAcceptsTheUnitOfTheBootstrapKubelet(t *testing.T) {
	t.Parallel()
	systemdTakes(t, "evenkeel-bootstrap.service", "evenkeel-bootstrap.service", "evenkeel-bootstrap.service", nil,
		"Type=exec", "NotifyAccess=main", "KillMode=mixed", "Restart=always", "RestartSec=2", "StartLimitIntervalSec=0", "Conflicts=kubelet.service",
		"TimeoutStopSec=60", "RuntimeDirectory=evenkeel evenkeel/lock evenkeel/probe", "RuntimeDirectoryPreserve=yes",
	)
}

func TestTheAgentAcceptsTheCommandLineOfTheBootstrapUnit(t *testing.T) {
	t.Parallel()
	n := newNode(t, "unitflags")
	raw, err := os.ReadFile("../../config/systemd/evenkeel-bootstrap.service")
	must(t, err)
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
