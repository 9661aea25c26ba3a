package machine

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/admission"
)

// Labels with which the kubelet names a container's pod and the container.
const (
	podUIDLabel        = "io.kubernetes.pod.uid"
	containerNameLabel = "io.kubernetes.container.name"
)

// askRuntime asks the container runtime for its cgroup driver and the filesystem of the images and, if device plugins are in
// use, for the running containers.
func (m Machine) askRuntime(ctx context.Context, endpoint string, in *admission.Input) error {
	conn, err := component.DialRuntime(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	config, err := runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
	case err != nil:
		return fmt.Errorf("the container runtime does not report its cgroup driver: %w", err)
	case config.Linux != nil && config.Linux.CgroupDriver == runtimeapi.CgroupDriver_CGROUPFS:
		in.Machine.CgroupDriver = "cgroupfs"
	case config.Linux != nil:
		in.Machine.CgroupDriver = "systemd"
	}
	// A runtime that cannot tell leaves the Node's conditions to be used.
	if images, err := runtimeapi.NewImageServiceClient(conn).ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{}); err == nil {
		in.Usage.ImageFS, in.Usage.ImageFSInodes = m.mounted(images.ImageFilesystems)
		in.Usage.ContainerFS, in.Usage.ContainerFSInodes = m.mounted(images.ContainerFilesystems)
	}
	if len(in.Devices.Registered) == 0 && len(in.Devices.Allocated) == 0 {
		return nil
	}
	containers, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return fmt.Errorf("the container runtime does not list its containers: %w", err)
	}
	in.Running = map[types.UID]map[string]bool{}
	for _, c := range containers.Containers {
		uid := types.UID(c.Labels[podUIDLabel])
		if in.Running[uid] == nil {
			in.Running[uid] = map[string]bool{}
		}
		in.Running[uid][c.Labels[containerNameLabel]] = true
	}
	return nil
}

// mounted returns the levels of the only filesystem of a list; zero if there is none, or more than one.
func (m Machine) mounted(list []*runtimeapi.FilesystemUsage) (bytes, inodes admission.Level) {
	if len(list) != 1 || list[0].GetFsId().GetMountpoint() == "" {
		return admission.Level{}, admission.Level{}
	}
	return filesystem(m.Root + list[0].FsId.Mountpoint)
}
