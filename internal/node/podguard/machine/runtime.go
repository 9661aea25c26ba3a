// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
)

// Labels with which the kubelet names a container's pod and the container.
const (
	podUIDLabel        = "io.kubernetes.pod.uid"
	containerNameLabel = "io.kubernetes.container.name"
)

// The numbers of fields in messages of the CRI, runtime.v1: the message, and the field. Tests answer with the messages of the library.
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

// cgroupDriver returns the container runtime's cgroup driver; empty: it does not report one.
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

// askRuntime asks the container runtime for its cgroup driver and the filesystem of the images and, if device plugins are in
// use, for the running containers.
func (m Machine) askRuntime(ctx context.Context, endpoint string, in *podguard.Input) (err error) {
	if in.Machine.CgroupDriver, err = cgroupDriver(ctx, endpoint); err != nil {
		return err
	}
	// A runtime that cannot tell leaves the Node's conditions to be used.
	if images, err := component.CallRuntime(ctx, endpoint, "ImageService/ImageFsInfo", nil); err == nil {
		in.Usage.ImageFS, in.Usage.ImageFSInodes = m.mounted(images.All(imageFsInfoImages))
		in.Usage.ContainerFS, in.Usage.ContainerFSInodes = m.mounted(images.All(imageFsInfoContainers))
	}
	if len(in.Devices.Registered) == 0 && len(in.Devices.Allocated) == 0 {
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

// mounted returns the levels of the only filesystem of a list; zero if there is none, or more than one.
func (m Machine) mounted(list []component.Message) (bytes, inodes podguard.Level) {
	if len(list) != 1 || len(list[0].Get(filesystemUsageFsID)) == 0 {
		return podguard.Level{}, podguard.Level{}
	}
	return filesystem(m.Root + string(list[0].Get(filesystemUsageFsID).Get(fsIDMountpoint)))
}
