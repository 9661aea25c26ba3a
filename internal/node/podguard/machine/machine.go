// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine reads from this machine what a prediction of the kubelet's
// admission depends on: the kubelet's state files, the running containers, the
// machine's capacity, and its present usage. It decides nothing, and writes
// nothing.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
)

// Machine is this machine, as a kubelet's flags and configuration refer to it.
type Machine struct {
	// Root is prefixed to all paths outside the kubelet's root directory; empty
	// outside tests.
	Root string
	// KubeletDir is the kubelet's --root-dir.
	KubeletDir string
	// NodeLabels is the value of the kubelet's flag --node-labels.
	NodeLabels string
	// IgnoreEviction means that the kubelet's flag --experimental-allocatable-ignore-eviction
	// is set.
	IgnoreEviction bool
}

// devicesFile is the device manager's checkpoint. Its directory does not depend
// on the kubelet's flags.
const devicesFile = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"

// Describe sets the fields of in that are read from this machine, all but
// Minor, Before, After, Node and Pods. in.Before, or else in.After, names the
// container runtime and the cgroup of the pods. What cannot be measured stays
// zero. An error means that a file of the kubelet, or the container runtime's
// answer, is needed and cannot be used.
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

// Measure sets the fields of in that podguard.Unusable needs. An error means
// that the container runtime does not answer.
func (m Machine) Measure(ctx context.Context, in *podguard.Input) (err error) {
	in.Machine.OnlineCPUs = m.cpus(onlineCPUs)
	m.capacity(in)
	in.Machine.IgnoreEviction = m.IgnoreEviction
	in.Machine.CgroupDriver, err = cgroupDriver(ctx, component.RuntimeEndpoint(in.Before))

	return err
}

const onlineCPUs = "/sys/devices/system/cpu/online"

// StateFiles sets the fields of in that podguard.StateConflicts needs: the
// state of the CPU and memory managers, and the CPUs that are online.
func (m Machine) StateFiles(in *podguard.Input) error {
	in.Machine.OnlineCPUs = m.cpus(onlineCPUs)
	return errors.Join(
		read(filepath.Join(m.KubeletDir, podguard.CPUStateFile), &in.CPUState, podguard.DecodeCPUState),
		read(filepath.Join(m.KubeletDir, podguard.MemoryStateFile), &in.MemoryState, podguard.DecodeMemoryState))
}

// maxFile is the size that the decoders accept, in bytes.
const maxFile = 32 << 20

// read decodes a file into result; a missing file leaves it as it is.
func read[T any](path string, result *T, decode func([]byte) (T, error)) error {
	data, err := atomicfile.ReadBounded(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
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

// labels parses the flag --node-labels like the kubelet: a later value of a
// label replaces an earlier one.
func labels(flag string) map[string]string {
	parsed := map[string]string{}
	for pair := range strings.SplitSeq(flag, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			parsed[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}

	return parsed
}

// Labels with which the kubelet names a container's pod and the container.
const (
	podUIDLabel        = "io.kubernetes.pod.uid"
	containerNameLabel = "io.kubernetes.container.name"
)

// The numbers of fields in messages of the CRI, runtime.v1: the message, and
// the field. Tests answer with the messages of the library.
const (
	configResponseLinux    = 1
	linuxCgroupDriver      = 1
	imageFsInfoImages      = 1
	imageFsInfoContainers  = 2
	filesystemUsageFsID    = 2
	fsIDMountpoint         = 1
	containersResponseList = 1
	containerLabels        = 8
	entryKey               = 1
	entryValue             = 2
)

// cgroupDriver returns the container runtime's cgroup driver; empty: it does
// not report one.
func cgroupDriver(ctx context.Context, endpoint string) (string, error) {
	config, err := component.CallRuntime(ctx, endpoint, "RuntimeService/RuntimeConfig", nil)
	linux := config.All(configResponseLinux)
	switch {
	case errors.Is(err, errors.ErrUnsupported) || err == nil && len(linux) == 0:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("the container runtime does not report its cgroup driver: %w", err)
	}

	return map[string]string{"": "systemd", "\x01": "cgroupfs"}[string(linux[0].Get(linuxCgroupDriver))], nil // 0 and 1
}

// askRuntime asks the container runtime for its cgroup driver and the
// filesystem of the images and, if device plugins are in use, for the running
// containers.
func (m Machine) askRuntime(ctx context.Context, endpoint string, in *podguard.Input) (err error) {
	if in.Machine.CgroupDriver, err = cgroupDriver(ctx, endpoint); err != nil {
		return err
	}

	// A runtime that cannot tell leaves the Node's conditions to be used.
	if images, err := component.CallRuntime(ctx, endpoint, "ImageService/ImageFsInfo", nil); err == nil {
		in.Usage.ImageFS, in.Usage.ImageFSInodes = m.mounted(images.All(imageFsInfoImages))
		in.Usage.ContainerFS, in.Usage.ContainerFSInodes = m.mounted(images.All(imageFsInfoContainers))
	}

	if len(in.Devices.Resources) == 0 {
		return nil
	}

	running := component.Message{1<<3 | 2, 4, 2<<3 | 2, 2, 1 << 3, 1} // the fields filter, state and state
	containers, err := component.CallRuntime(ctx, endpoint, "RuntimeService/ListContainers", running)
	if err != nil {
		return fmt.Errorf("the container runtime does not list its containers: %w", err)
	}

	in.Running = map[types.UID]map[string]bool{}
	for _, c := range containers.All(containersResponseList) {
		labels := map[string]string{}
		for _, entry := range c.All(containerLabels) {
			labels[string(entry.Get(entryKey))] = string(entry.Get(entryValue))
		}

		uid := types.UID(labels[podUIDLabel])
		if in.Running[uid] == nil {
			in.Running[uid] = map[string]bool{}
		}

		in.Running[uid][labels[containerNameLabel]] = true
	}

	return nil
}

// mounted returns the levels of the only filesystem of a list; zero if there is
// none, or more than one.
func (m Machine) mounted(list []component.Message) (bytes, inodes podguard.Level) {
	if len(list) != 1 || len(list[0].Get(filesystemUsageFsID)) == 0 {
		return podguard.Level{}, podguard.Level{}
	}

	return filesystem(m.Root + string(list[0].Get(filesystemUsageFsID).Get(fsIDMountpoint)))
}
