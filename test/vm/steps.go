package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/bed"
)

var steps = []step{
	{"boot", "Debian boots, with systemd as the first process and cgroup v2, and its kubelet is a Ready node", boots},
}

func boots(ctx context.Context, l *lab) error {
	m, err := l.node(ctx)
	if err != nil {
		return err
	}
	out, err := m.Run(ctx, "cat /proc/1/comm; stat -f -c %T /sys/fs/cgroup; uname -r; systemctl is-active containerd kubelet")
	if err != nil {
		return err
	}
	fields := strings.Fields(out)
	if len(fields) != 5 || fields[0] != "systemd" || fields[1] != "cgroup2fs" || fields[3] != "active" || fields[4] != "active" {
		return fmt.Errorf("the machine says %q", out)
	}
	checked("the first process is systemd, cgroups are of version 2, the kernel is %s, containerd and the kubelet are active", fields[2])
	err = bed.Eventually(ctx, patience, func(ctx context.Context) error {
		out, err := m.Run(ctx, "systemctl is-system-running")
		if strings.TrimSpace(out) == "running" {
			return nil
		}
		if failed, _ := m.Run(ctx, "systemctl --failed --no-legend"); failed != "" {
			return fmt.Errorf("failed units: %s", failed)
		}
		return err
	})
	if err != nil {
		return err
	}
	took, err := m.Run(ctx, "systemd-analyze time | head -1")
	if err != nil {
		return err
	}
	checked("no unit has failed: %s", strings.TrimSpace(took))
	return nil
}
