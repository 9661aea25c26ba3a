// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// HasStaticPods reports whether the static pod path has manifests: a file, or a directory with a file whose name does
// not start with a dot. A missing path has none.
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
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		// The kubelet follows symbolic links.
		if info, err := os.Stat(path + "/" + e.Name()); err == nil && info.Mode().IsRegular() {
			return true, nil
		}
	}
	return false, nil
}

// RuntimeEndpoint returns the endpoint of the container runtime, such as unix:///run/containerd/containerd.sock.
func RuntimeEndpoint(effective Effective) string { return effective.String("containerRuntimeEndpoint") }

// runtimeTimeout limits a request for the container runtime's version. The agent is blocked during the request.
const runtimeTimeout = 2 * time.Second

// socketPath returns the path of a unix socket endpoint, with or without the scheme.
func socketPath(endpoint string) (string, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok && !strings.HasPrefix(endpoint, "/") {
		return "", fmt.Errorf("the container runtime endpoint %q is not a unix socket", endpoint)
	}
	return path, nil
}

// RuntimeReachable returns nil if the container runtime answers a request for its version, which is the kubelet's
// first request; a hanging runtime still accepts connections.
func RuntimeReachable(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	if _, err := CallRuntime(ctx, endpoint, "RuntimeService/Version", nil); err != nil {
		return fmt.Errorf("the container runtime does not answer: %w", err)
	}
	return nil
}
