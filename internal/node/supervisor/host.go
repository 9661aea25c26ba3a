// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// oomScoreAdj is the value that a kubelet sets for itself. The kernel must not kill this process first, because the
// kubelet would die with it.
const oomScoreAdj = -999

// ProtectFromOOM makes the kernel spare this process when memory runs out. If that is not allowed, it logs a warning.
// Children inherit the setting; a kubelet sets its own.
func ProtectFromOOM(log *slog.Logger) { protectFromOOM("/proc/self/oom_score_adj", log) }

func protectFromOOM(path string, log *slog.Logger) {
	if err := os.WriteFile(path, []byte(strconv.Itoa(oomScoreAdj)), 0); err != nil {
		log.Warn("not protected from the kernel's OOM killer", "err", err)
	}
}

// ShuttingDown reports whether systemd runs the node and is stopping it. It returns false if that is unknown after a
// second.
func ShuttingDown(ctx context.Context) bool { return shuttingDown(ctx, "/run/systemd/system") }

// shuttingDown calls systemctl only if runDir exists, as sd_booted(3) does.
func shuttingDown(ctx context.Context, runDir string) bool {
	if _, err := os.Stat(runDir); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", "is-system-running")
	cmd.WaitDelay = 100 * time.Millisecond // in case a descendant keeps its output open
	out, _ := cmd.Output()                 // an error for every state other than "running"
	return strings.TrimSpace(string(out)) == "stopping"
}
