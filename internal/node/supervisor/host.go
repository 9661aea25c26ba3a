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

// oomScoreAdj is what a kubelet sets for itself. This process must not go before it: the kubelet would go with it.
const oomScoreAdj = -999

// ProtectFromOOM asks the kernel to spare this process when memory runs out. Where that is not allowed it says so
// and leaves it. Children inherit it; a kubelet sets its own.
func ProtectFromOOM(log *slog.Logger) { protectFromOOM("/proc/self/oom_score_adj", log) }

func protectFromOOM(path string, log *slog.Logger) {
	if err := os.WriteFile(path, []byte(strconv.Itoa(oomScoreAdj)), 0); err != nil {
		log.Warn("not protected from the kernel's OOM killer", "err", err)
	}
}

// ShuttingDown says whether the node is going down: systemd runs it and says that it is stopping. When it cannot tell
// within a second it says no.
func ShuttingDown(ctx context.Context) bool { return shuttingDown(ctx, "/run/systemd/system") }

// shuttingDown asks only where runDir exists, which is how sd_booted(3) knows systemd.
func shuttingDown(ctx context.Context, runDir string) bool {
	if _, err := os.Stat(runDir); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", "is-system-running")
	cmd.WaitDelay = 100 * time.Millisecond // should something that it started keep its output open
	out, _ := cmd.Output()                 // it fails for every state but "running"
	return strings.TrimSpace(string(out)) == "stopping"
}
