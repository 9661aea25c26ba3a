package component

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// bareKubelet asks a kubelet without a node: stage 1 of the dry run, no flags, no local configuration. On a host with
// cgroup v1 a kubelet refuses every configuration that does not say `failCgroupV1: false`, however good it is; so what
// it refuses there is asked again with the flag that says so.
type bareKubelet struct {
	plain    *Harness
	tolerant *Harness // with --fail-cgroupv1=false

	mu        sync.Mutex
	proven    Identity
	preferred string     // by the one that is proven
	shape     *dumpShape // of its dump
}

// kubeletVersions are those that a kubelet is asked for, in the order in which Kubernetes prefers versions.
var kubeletVersions = []string{"v2", "v1", "v1beta3", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"}

func newBareKubelet(path, scratchDir string, log *slog.Logger) *binary {
	// With no CertDir a certificate of the dry run shows as a relative path, which no configuration can have: the
	// kubelet makes those absolute.
	plain := &Kubelet{Path: path}
	tolerant := &Kubelet{Path: path, flags: []flag{{name: "fail-cgroupv1", value: "false", tokens: []string{"--fail-cgroupv1=false"}}}}
	return &binary{
		name: "kubelet", kind: payload.KubeletKind, runner: program{"kubelet", path},
		asker: &bareKubelet{plain: NewHarness(plain, scratchDir, log), tolerant: NewHarness(tolerant, scratchDir, log)},
	}
}

// prove asks the kubelet, which does not say what it prefers, for an empty configuration of one version after the other.
// The first that it accepts is also the proof that it stops where stage 1 ends.
func (k *bareKubelet) prove(ctx context.Context) (string, error) {
	id, err := k.plain.k.Identity()
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.proven == id {
		return k.preferred, nil
	}
	removeLeftovers(k.plain.scratch, k.plain.log)
	group, _, _ := strings.Cut(payload.UpstreamAPIVersion, "/")
	var a answer
	for _, version := range kubeletVersions {
		apiVersion := group + "/" + version
		if a = k.plain.runEmpty(ctx, apiVersion); a.outcome == Accepted {
			shape, err := k.plain.learnShape(ctx, a.dumps, apiVersion)
			if err != nil {
				return "", fmt.Errorf("what this kubelet says of a configuration could not be found out: %w", err)
			}
			k.proven, k.preferred, k.shape = id, apiVersion, shape
			return apiVersion, nil
		}
		if !strings.Contains(a.words, fmt.Sprintf("is registered for version %q", apiVersion)) {
			break
		}
	}
	return "", fmt.Errorf("the dry run does not work with this kubelet: %s", a.words)
}

func (k *bareKubelet) dumpShape() *dumpShape {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.shape
}

func (k *bareKubelet) ask(ctx context.Context, data []byte) (answer, string) {
	version, err := k.prove(ctx)
	if err != nil {
		return answer{words: err.Error()}, ""
	}
	a, unjudged := k.askHere(ctx, data, emptyConfig(version, payload.KubeletKind))
	if a.effective != nil {
		a.effective["apiVersion"], a.effective["kind"] = version, payload.KubeletKind
	}
	return a, unjudged
}

func (k *bareKubelet) askHere(ctx context.Context, data, empty []byte) (answer, string) {
	a := k.run(ctx, k.plain, data)
	if a.outcome != Rejected {
		return a, ""
	}
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
		return a, "whether failCgroupV1: true, which is the default, suits the node: on this host, which has cgroup v1, a kubelet would not run with it"
	case a.outcome == Rejected && strings.Contains(a.words, "cgroup v1"):
		return answer{words: a.words + " (which is this host's, and may not be the node's)"}, ""
	default:
		return a, ""
	}
}

func (k *bareKubelet) run(ctx context.Context, h *Harness, data []byte) answer {
	of := whole(data)
	if err := k.opensClientCA(of); err != nil {
		return answer{words: oneLine(err.Error())}
	}
	a := h.run(ctx, dryRun{stage: 1, of: of, nodeFlags: true, shape: k.dumpShape()})
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

// opensClientCA returns an error if the configuration names a client CA file that is something else than a file on this
// host: until 1.35 a kubelet would open it.
func (k *bareKubelet) opensClientCA(of setup) error {
	layers, err := of.layers()
	if err != nil {
		return nil // the kubelet's to refuse
	}
	file, _ := topmost(layers, splitPath(clientCAField))
	name, _ := file.(string)
	if info, err := os.Stat(name); err == nil && (!info.Mode().IsRegular() || info.Size() == 0) {
		return fmt.Errorf("%s: on this host %s is not a regular file with something in it", clientCAField, name)
	}
	return nil
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
