// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine reads from this machine what a prediction of the kubelet's admission depends on: the kubelet's state files, the
// running containers, the machine's capacity, and its present usage. It decides nothing, and writes nothing.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
)

// Machine is this machine, as a kubelet's flags and configuration refer to it.
type Machine struct {
	// Root is prefixed to all paths outside the kubelet's root directory; empty outside tests.
	Root string
	// KubeletDir is the kubelet's --root-dir.
	KubeletDir string
	// NodeLabels is the value of the kubelet's flag --node-labels.
	NodeLabels string
	// IgnoreEviction means that the kubelet's flag --experimental-allocatable-ignore-eviction is set.
	IgnoreEviction bool
}

// devicesFile is the device manager's checkpoint. Its directory does not depend on the kubelet's flags.
const devicesFile = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"

// Describe sets the fields of in that are read from this machine, all but Minor, Before, After, Node and Pods. in.Before, or else
// in.After, names the container runtime and the cgroup of the pods. What cannot be measured stays zero. An error means that a
// file of the kubelet, or the container runtime's answer, is needed and cannot be used.
func (m Machine) Describe(ctx context.Context, in *podguard.Input) error {
	running := in.Before
	if running == nil {
		running = in.After
	}
	if err := m.StateFiles(in); err != nil {
		return err
	}
	if err := read(filepath.Join(m.KubeletDir, "allocated_pods_state"), &in.Allocated, podguard.DecodeAllocated); err != nil {
		return err
	}
	if err := read(m.Root+devicesFile, &in.Devices, podguard.DecodeDevices); err != nil {
		return err
	}
	m.capacity(in)
	in.Machine.IgnoreEviction, in.Machine.NodeLabels = m.IgnoreEviction, labels(m.NodeLabels)
	in.Usage = m.usage(running)
	if endpoint := component.RuntimeEndpoint(running); endpoint != "" {
		return m.askRuntime(ctx, endpoint, in)
	}
	return nil
}

// Measure sets the fields of in that podguard.Unusable needs. An error means that the container runtime does not answer.
func (m Machine) Measure(ctx context.Context, in *podguard.Input) (err error) {
	in.Machine.OnlineCPUs = m.cpus(onlineCPUs)
	m.capacity(in)
	in.Machine.IgnoreEviction = m.IgnoreEviction
	in.Machine.CgroupDriver, err = cgroupDriver(ctx, component.RuntimeEndpoint(in.Before))
	return err
}

const onlineCPUs = "/sys/devices/system/cpu/online"

// StateFiles sets the fields of in that podguard.StateConflicts needs: the state of the CPU and memory managers, and the CPUs
// that are online.
func (m Machine) StateFiles(in *podguard.Input) error {
	in.Machine.OnlineCPUs = m.cpus(onlineCPUs)
	return errors.Join(
		read(filepath.Join(m.KubeletDir, podguard.CPUStateFile), &in.CPUState, podguard.DecodeCPUState),
		read(filepath.Join(m.KubeletDir, podguard.MemoryStateFile), &in.MemoryState, podguard.DecodeMemoryState))
}

// maxFile is the size that the decoders accept, and one byte more: they reject a larger file, whatever its size.
const maxFile = 32<<20 + 1

// read decodes a file into result; a missing file leaves it as it is.
func read[T any](path string, result *T, decode func([]byte) (T, error)) error {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // opening a pipe must not wait for its writer
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return err
	}
	decoded, err := decode(data)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Dir(path), err)
	}
	*result = decoded
	return nil
}

// labels parses the flag --node-labels like the kubelet: a later value of a label replaces an earlier one.
func labels(flag string) map[string]string {
	var parsed map[string]string
	for _, pair := range strings.Split(flag, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			if parsed == nil {
				parsed = map[string]string{}
			}
			parsed[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return parsed
}
