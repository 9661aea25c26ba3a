// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// NoMachine implements the methods of agent.Kubelet for a simulated kubelet:
// nothing of the machine that it runs on matters to it.
type NoMachine struct{}

// LocalFiles implements agent.Kubelet.
func (NoMachine) LocalFiles() map[string]string { return nil }

// Files implements agent.Kubelet.
func (NoMachine) Files(p payload.Resolved) (map[string][]byte, error) {
	if p.HasRules() {
		return map[string][]byte{p.Key: p.Upstream}, nil
	}

	return map[string][]byte{p.Key: p.Data}, nil
}

// Capacity implements agent.Kubelet.
func (NoMachine) Capacity() payload.Capacity { return payload.Capacity{} }

// Describe implements agent.Kubelet.
func (NoMachine) Describe(context.Context, *podguard.Input) error { return nil }

// MoveState implements agent.Kubelet.
func (NoMachine) MoveState(podguard.Input) ([]string, error) { return nil, nil }

// RuntimeReachable implements agent.Kubelet.
func (NoMachine) RuntimeReachable(context.Context, string) error { return nil }

// RunsStaticPods implements agent.Kubelet.
func (NoMachine) RunsStaticPods(component.Effective) bool { return false }

// Rendered returns the payload that Files made the files of, nil for the local
// configuration.
func Rendered(run component.RunConfig, read func(name string) ([]byte, error)) (*payload.Payload, error) {
	if run.Dir == "" {
		return nil, nil
	}

	key := payload.KeyKubelet
	if run.Dropin {
		key = payload.KeyKubeletDropin
	}

	data, err := read(filepath.Join(run.Dir, key))
	if err != nil {
		return nil, fmt.Errorf("read the rendered configuration: %w", err)
	}

	decoded, err := payload.Decode(key, data)
	if err != nil {
		return nil, fmt.Errorf("decode the rendered configuration: %w", err)
	}

	return &decoded, nil
}

// NoInit implements agent.InitSystem without an init system.
type NoInit struct{}

// Ready implements agent.InitSystem.
func (NoInit) Ready() error { return nil }

// Stopping implements agent.InitSystem.
func (NoInit) Stopping() error { return nil }

// Status implements agent.InitSystem.
func (NoInit) Status(string) error { return nil }

// Cover implements agent.InitSystem.
func (NoInit) Cover(bool) {}
