// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// kubeletValidator validates with a kubelet without a node: stage 1 of the dry
// run, no flags, no local configuration. On a host with cgroup v1 a kubelet
// rejects every configuration without `failCgroupV1: false`; there, a rejected
// configuration is checked again with the corresponding flag.
type kubeletValidator struct {
	plain    *DryRunner
	cgroupV1 *DryRunner // with --fail-cgroupv1=false
}

// kubeletVersions are the versions that probe tries, in the order of
// Kubernetes' version priority. The kubelet does not report the version that it
// prefers.
var kubeletVersions = []string{"v2", "v1", "v1beta3", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"}

// refusedOnCgroupV1 is the whole error about a field that a kubelet refuses
// only on a host with cgroup v1.
const refusedOnCgroupV1 = "invalid configuration: singleProcessOOMKill must not be explicitly set to false when using cgroup v1"

func newKubelet(path, scratchDir string, log *slog.Logger) *binary {
	// Without CertDir, a certificate of the dry run appears as a relative path.
	// No configuration can contain one, because the kubelet makes paths
	// absolute.
	plain := &Kubelet{Path: path}
	cgroupV1 := &Kubelet{Path: path, flags: []flag{{name: "fail-cgroupv1", value: "false", tokens: []string{"--fail-cgroupv1=false"}}}}
	v := &kubeletValidator{plain: NewDryRunner(plain, scratchDir, log), cgroupV1: NewDryRunner(cgroupV1, scratchDir, log)}
	group, _, _ := strings.Cut(payload.UpstreamAPIVersion, "/")
	v.plain.apiVersions = make([]string, len(kubeletVersions))
	for i, version := range kubeletVersions {
		v.plain.apiVersions[i] = group + "/" + version
	}

	return &binary{name: "kubelet", kind: payload.KubeletKind, runner: program{"kubelet", path}, validator: v}
}

func (k *kubeletValidator) probe(ctx context.Context) (string, error) {
	caps, err := k.plain.probe(ctx)
	return caps.apiVersion, err
}

func (k *kubeletValidator) validate(ctx context.Context, data []byte) (result, string) {
	caps, err := k.plain.probe(ctx)
	if err != nil {
		return result{message: err.Error()}, ""
	}

	a, unchecked := k.validateOnHost(ctx, caps, data)
	if a.outcome == Accepted {
		if errs := textErrors(a.effective); len(errs) > 0 {
			return result{outcome: Rejected, message: oneLine(strings.Join(errs, "; "))}, ""
		}

		unchecked = strings.TrimPrefix(unchecked+"; "+notJudged, "; ")
	}

	if a.effective != nil {
		a.effective["apiVersion"], a.effective["kind"] = caps.apiVersion, payload.KubeletKind
	}

	return a, unchecked
}

func (k *kubeletValidator) validateOnHost(ctx context.Context, caps capabilities, data []byte) (result, string) {
	a := k.run(ctx, k.plain, caps.shape, data)
	if a.outcome != Rejected {
		return a, ""
	}

	empty := emptyConfig(caps.apiVersion, payload.KubeletKind)
	if bare := k.run(ctx, k.plain, caps.shape, empty); bare.outcome != Rejected {
		return a, "" // the host is not the cause
	}

	a = k.run(ctx, k.cgroupV1, caps.shape, data)
	switch {
	case a.outcome == Accepted:
		// Only the flag made the difference.
		if a.effective != nil {
			a.effective["failCgroupV1"] = true
		}

		return a, "failCgroupV1: true (the default), because this host uses cgroup v1, where a kubelet does not run with it"
	case a.outcome == Rejected && a.message == refusedOnCgroupV1:
		return result{message: a.message + " (this host uses cgroup v1; the node may not)"}, ""
	default:
		return a, ""
	}
}

func (k *kubeletValidator) run(ctx context.Context, h *DryRunner, shape *dumpShape, data []byte) result {
	config := wholeConfig(data)
	if err := k.checkClientCAFile(config); err != nil {
		return result{message: oneLine(err.Error())}
	}

	a := h.run(ctx, dryRun{stage: 1, config: config, withFlags: true, shape: shape})
	if a.effective == nil {
		return a
	}

	for name, file := range map[string]string{"tlsCertFile": "kubelet.crt", "tlsPrivateKeyFile": "kubelet.key"} {
		if a.effective[name] == file {
			a.effective[name] = "" // a running kubelet creates its own
		}
	}

	h.restoreRelativePaths(a.effective)

	return a
}

// checkClientCAFile returns an error if the configuration's client CA file is
// not a regular file on this host: up to 1.35 a kubelet would open it.
func (k *kubeletValidator) checkClientCAFile(config configuration) error {
	layers, err := config.layers()
	if err != nil {
		return nil // the kubelet rejects it
	}

	file, _ := lookupLayers(layers, splitPath(clientCAField))
	name, _ := file.(string)
	if info, err := os.Stat(name); err == nil && (!info.Mode().IsRegular() || info.Size() == 0) {
		return fmt.Errorf("%s: on this host %s is empty or not a regular file", clientCAField, name)
	}

	return nil
}

// restoreRelativePaths undoes how the kubelet resolves relative paths against
// the directory of the temporary file.
func (h *DryRunner) restoreRelativePaths(fields map[string]any) {
	for name, value := range fields {
		switch v := value.(type) {
		case map[string]any:
			h.restoreRelativePaths(v)
		case string:
			if rest, ok := strings.CutPrefix(v, filepath.Join(h.scratch, "dryrun-")); ok {
				_, path, _ := strings.Cut(rest, "/")
				fields[name] = filepath.Clean(path)
			}
		}
	}
}
