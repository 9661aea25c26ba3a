package component

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StaticPodPath returns the file or directory of static pods, or "".
func StaticPodPath(effective Effective) string { return effective.String("staticPodPath") }

// HasStaticPods tells whether the static pod path holds anything that the kubelet would run: a file, or a directory
// with a file whose name does not begin with a dot. A path that does not exist holds nothing.
func HasStaticPods(effective Effective) (bool, error) {
	path := StaticPodPath(effective)
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

// RuntimeEndpoint returns the container runtime's endpoint, such as unix:///run/containerd/containerd.sock.
func RuntimeEndpoint(effective Effective) string { return effective.String("containerRuntimeEndpoint") }

// runtimeTimeout is how long a container runtime may take to say its version. The agent decides nothing meanwhile.
const runtimeTimeout = 2 * time.Second

// socketPath returns the path of the unix socket that an endpoint is, with or without the scheme.
func socketPath(endpoint string) (string, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok && !strings.HasPrefix(endpoint, "/") {
		return "", fmt.Errorf("the container runtime endpoint %q is no unix socket", endpoint)
	}
	return path, nil
}

// RuntimeReachable returns nil if the container runtime at an endpoint answers the question that a kubelet asks first, for
// its version: one that hangs still takes connections. Like the kubelet on Linux it knows unix sockets only, with or without
// the scheme.
func RuntimeReachable(ctx context.Context, endpoint string) error {
	path, err := socketPath(endpoint)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	conn, err := grpc.NewClient("passthrough:///runtime", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), grpc.WithContextDialer(dial))
	if err != nil {
		return fmt.Errorf("the container runtime cannot be reached: %w", err)
	}
	defer conn.Close()
	if _, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
		return fmt.Errorf("the container runtime does not answer: %w", err)
	}
	return nil
}
