// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// HasStaticPods reports whether the static pod path has manifests: a file, or a
// directory with a file whose name does not start with a dot. A missing path
// has none.
func HasStaticPods(effective Effective) (bool, error) {
	path := effective.String("staticPodPath")
	if path == "" {
		return false, nil
	}

	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("static pods: %w", err)
	}
	if !info.IsDir() {
		return info.Mode().IsRegular(), nil
	}

	entries, err := os.ReadDir(path)
	if err != nil {
		return false, fmt.Errorf("static pods: %w", err)
	}

	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		if strings.HasPrefix(e.Name(), ".") {
			return false
		}

		info, err := os.Stat(path + "/" + e.Name()) // the kubelet follows symbolic links

		return err == nil && info.Mode().IsRegular()
	}), nil
}

// RuntimeEndpoint returns the endpoint of the container runtime, such as
// unix:///run/containerd/containerd.sock.
func RuntimeEndpoint(effective Effective) string { return effective.String("containerRuntimeEndpoint") }

// runtimeTimeout limits a request for the container runtime's version. The
// agent is blocked during the request.
const runtimeTimeout = 2 * time.Second

// socketPath returns the path of a unix socket endpoint, with or without the
// scheme.
func socketPath(endpoint string) (string, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok && !strings.HasPrefix(endpoint, "/") {
		return "", fmt.Errorf("the container runtime endpoint %q is not a unix socket", endpoint)
	}

	return path, nil
}

// RuntimeReachable returns nil if the container runtime answers a request for
// its version, which is the kubelet's first request; a hanging runtime still
// accepts connections.
func RuntimeReachable(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	if _, err := CallRuntime(ctx, endpoint, "RuntimeService/Version", nil); err != nil {
		return fmt.Errorf("the container runtime does not answer: %w", err)
	}

	return nil
}

// agentFields are the configuration fields that the agent uses, with the
// kubelet's flag and default.
var agentFields = []struct {
	path, flag string
	standard   any
}{
	{"containerRuntimeEndpoint", runtimeFlag, "unix:///run/containerd/containerd.sock"},
	{"cpuManagerPolicy", "cpu-manager-policy", "none"},
	{"healthzBindAddress", "healthz-bind-address", defaultHealthzAddress},
	{"healthzPort", "healthz-port", json.Number(fmt.Sprint(defaultHealthzPort))},
	{"memoryManagerPolicy", "memory-manager-policy", "None"},
	{"staticPodPath", "pod-manifest-path", ""},
}

// assumed returns the fields that the agent uses as the files of a
// configuration, the flags and the defaults have them: the agent runs the local
// configuration also with a kubelet that prints none, and must see outages of
// its runtime.
func (k *Kubelet) assumed(config configuration) Effective {
	layers, err := config.layers()
	if err != nil {
		return nil // addOrigins reports it
	}

	assumed := Effective{}
	for _, f := range agentFields {
		assumed[f.path] = f.standard
		if value, _ := lookupLayers(layers, splitPath(f.path)); value != nil {
			assumed[f.path] = value
		}
		if value, given := last(k.flags, f.flag); given {
			assumed[f.path] = value
		}
	}

	if port, isText := assumed["healthzPort"].(string); isText {
		assumed["healthzPort"] = json.Number(port)
	}

	return assumed
}

// EffectiveOrAssumed returns Effective or, if that is nil, Assumed. Assumed has
// the few fields that the agent needs to run a kubelet; it is not enough to
// judge a configuration.
func (v Verdict) EffectiveOrAssumed() Effective {
	if v.Effective != nil {
		return v.Effective
	}

	return v.Assumed
}

// CheckProtected returns why protected fields forbid a configuration that the
// kubelet accepted, or "", and whether they could be compared. Without the
// effective configuration nothing is known of a candidate, so it is never
// compared.
func (v Verdict) CheckProtected(p payload.Protection) (message string, compared bool) {
	switch {
	case len(v.Violations) > 0:
		return violationsMessage(v.Violations), true
	case v.Effective == nil && v.Stage == 0: // the check ended before a run
		return v.Message, false
	case v.Effective == nil:
		return "the kubelet did not print the effective configuration, so it cannot be compared with the local configuration", false
	case p.Empty():
		return "", true
	case v.Local == nil:
		return "the kubelet did not print the effective local configuration, so protected fields cannot be compared; check that the local " +
			"configuration is valid", false
	}

	return violationsMessage(p.Violations(v.Effective, v.Local, v.Hidden)), true
}

// mostViolations limits the protected fields in a message.
const mostViolations = 5

func violationsMessage(violations []payload.Difference) string {
	var parts []string
	for i, violation := range violations {
		if i == mostViolations {
			parts = append(parts, fmt.Sprintf("%d more", len(violations)-i))
			break
		}

		parts = append(parts, "protected field "+violation.String())
	}

	return strings.Join(parts, "; ")
}

// checkRuntimeEndpoint checks the endpoint of a container runtime that differs
// from the local configuration's, which stage 2 does not use. A missing socket
// is not a rejection, because it may appear later.
func (c *check) checkRuntimeEndpoint(v *Verdict) {
	endpoint := RuntimeEndpoint(v.Effective)
	if endpoint == "" || endpoint == c.runtime {
		return
	}

	path, err := socketPath(endpoint)
	if err != nil {
		v.Outcome, v.Message = Rejected, oneLine(err.Error())
		return
	}

	switch info, err := os.Stat(path); {
	case err != nil:
		v.Outcome, v.Message = CouldNotTell, oneLine("containerRuntimeEndpoint: "+err.Error())
	case info.Mode().Type() != os.ModeSocket:
		v.Outcome, v.Message = Rejected, oneLine("containerRuntimeEndpoint: "+path+" is not a socket")
	}
}
