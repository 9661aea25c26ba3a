package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// commandLine waits until the kubelet's command line has a flag, or has it no more.
func (h *host) commandLine(flag string, has bool) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("the kubelet has %s: %v", flag, has), func(ctx context.Context) error {
		pid := h.systemctl("show", "kubelet", "--property=MainPID", "--value")
		tasks, err := filepath.Glob(filepath.Join(h.m.Proc(), pid, "task/*/children"))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			children, err := os.ReadFile(task)
			if err != nil {
				return err
			}
			for child := range strings.FieldsSeq(string(children)) {
				line, err := os.ReadFile(filepath.Join(h.m.Proc(), child, "cmdline"))
				words := strings.Split(string(line), "\x00")
				if err == nil && strings.HasPrefix(filepath.Base(words[0]), "kubelet") && slices.Contains(words, flag) == has {
					return h.Healthy(ctx)
				}
			}
		}
		return errors.New("there is no such kubelet")
	})
}

func TestFlagsOfAKubeletAreReplacedOnANode(t *testing.T) {
	t.Parallel()
	h := newHost(t, "flags")
	dropins := filepath.Join(filepath.Dir(h.bin), "kubelet.conf.d")
	if err := os.Mkdir(dropins, 0o755); err != nil {
		t.Fatal(err)
	}
	h.withFlag(fmt.Sprintf("'--max-pods=77 --config-dir=%s'", dropins))
	h.does(0, "evenkeel-agent runs the kubelet of kubelet.service: healthy", "install", "--bin-dir="+h.bin, "--", "--listen="+h.Listen)
	h.commandLine("--max-pods=77", true)

	var out bytes.Buffer
	code, err := h.Evenkeel(t.Context(), &out, "flags", h.Node.Name())
	if err != nil || code != 0 || !strings.Contains(out.String(), "--max-pods=77 (maxPods)\n") || !strings.HasSuffix(out.String(), "\nmaxPods: 77\n") {
		t.Errorf("kubectl evenkeel flags: exit code %d, %v: %s", code, err, &out)
	}

	h.does(0, "replaces flags of the kubelet\n", "flags", "--apply", "--bin-dir="+h.bin)
	h.commandLine("--max-pods=77", false)
	h.eventually("the drop-in replaces the flag", func(ctx context.Context) error {
		if pods, err := h.MaxPods(ctx); err != nil || pods != 77 {
			return fmt.Errorf("maxPods is %d, %w", pods, err)
		}
		return nil
	})
	files, err := filepath.Glob(filepath.Join(dropins, "99-evenkeel-flags-*.conf"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the drop-ins are %q, %v", files, err)
	}

	// Without the drop-in the flag counts again.
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	h.systemctl("restart", "kubelet")
	h.commandLine("--max-pods=77", true)
}
