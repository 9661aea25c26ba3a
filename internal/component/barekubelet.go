package component

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// bareKubelet asks a kubelet without a node: stage 1 of the dry run, no flags, no local configuration. On a host with
// cgroup v1 a kubelet refuses every configuration that does not say `failCgroupV1: false`, however good it is; so what
// it refuses there is asked again with the flag that says so.
type bareKubelet struct {
	plain    *Harness
	tolerant *Harness // with --fail-cgroupv1=false
}

func newBareKubelet(path, scratchDir string, log *slog.Logger) *binary {
	// With no CertDir a certificate of the dry run shows as a relative path, which no configuration can have: the
	// kubelet makes those absolute.
	plain := &Kubelet{Path: path}
	tolerant := &Kubelet{Path: path, flags: []flag{{name: "fail-cgroupv1", value: "false", tokens: []string{"--fail-cgroupv1=false"}}}}
	return &binary{
		name: "kubelet", path: path, apiVersion: payload.UpstreamAPIVersion, kind: payload.KubeletKind,
		asker: &bareKubelet{NewHarness(plain, scratchDir, log), NewHarness(tolerant, scratchDir, log)},
	}
}

func (k *bareKubelet) ask(ctx context.Context, data []byte) (answer, string) {
	if _, err := k.plain.prove(ctx); err != nil {
		return answer{words: err.Error()}, ""
	}
	a := k.run(ctx, k.plain, data)
	if a.outcome != Rejected {
		return a, ""
	}
	empty := emptyConfig(payload.UpstreamAPIVersion, payload.KubeletKind)
	if bare := k.run(ctx, k.plain, empty); bare.outcome != Rejected {
		return a, "" // the configuration's fault, not the host's
	}
	a = k.run(ctx, k.tolerant, data)
	switch {
	case a.outcome == Accepted:
		// The flag alone made the difference.
		if a.effective != nil {
			a.effective["failCgroupV1"] = true
		}
		return a, "failCgroupV1 is true, with which the kubelet would not run on this host, which has cgroup v1"
	case a.outcome == Rejected && strings.Contains(a.words, "cgroup v1"):
		return answer{words: a.words + " (which is this host's, and may not be the node's)"}, ""
	default:
		return a, ""
	}
}

func (k *bareKubelet) run(ctx context.Context, h *Harness, data []byte) answer {
	a := h.run(ctx, dryRun{stage: 1, of: whole(data), nodeFlags: true})
	if a.effective == nil {
		return a
	}
	for name, file := range map[string]string{"tlsCertFile": "kubelet.crt", "tlsPrivateKeyFile": "kubelet.key"} {
		if a.effective[name] == file {
			a.effective[name] = "" // the kubelet makes its own when it runs
		}
	}
	h.asWritten(a.effective)
	return a
}

// asWritten gives relative paths back, which the kubelet resolved against the file that it was given.
func (h *Harness) asWritten(fields map[string]any) {
	for name, value := range fields {
		switch v := value.(type) {
		case map[string]any:
			h.asWritten(v)
		case string:
			if rest, ok := strings.CutPrefix(v, filepath.Join(h.scratch, "dryrun-")); ok {
				_, path, _ := strings.Cut(rest, "/")
				fields[name] = filepath.Clean(path)
			}
		}
	}
}
