// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/build/image"
	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// The images of every node, which need no registry.
const (
	PauseImage = "registry.k8s.io/pause:3.6" // used by containerd 1.6 for pod sandboxes
	SleepImage = "evenkeel.dev/sleep:1"      // runs until SIGTERM, then exits 0 at once
)

// SleepingPod returns a pod of SleepImage, which runs also without controllers.
func SleepingPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "sleep", Image: SleepImage}},
	}}
}

// ErrNoNode means that this machine cannot run a node; the error that wraps it
// names what is missing.
var ErrNoNode = errors.New("this machine cannot run a node")

// Node is everything that a stock kubelet needs: containerd, CNI, a cgroup,
// certificates, configuration. It does not include a running kubelet.
type Node struct {
	cluster    *Cluster
	name       string
	dir        string
	programs   programs
	bridge     string
	subnet     string
	cgroup     string
	kubeconfig string
	healthz    int

	containerd service
	stop       sync.Once
}

// NewNode makes a node and starts its containerd. The name can be used again
// after the node's Stop. The error wraps ErrNoNode if the machine lacks
// something that a node needs.
func (c *Cluster) NewNode(ctx context.Context, name string) (_ *Node, err error) {
	defer must.Catch(&err)

	n := &Node{cluster: c, name: name, dir: filepath.Join(c.dir, "nodes", name), programs: must.Get(findPrograms())}
	_, missing := os.Stat(c.kubelet)
	must.That(missing == nil, "run `make tools`: %w", missing)
	// The longest socket path of containerd and the kubelet; the kernel allows
	// 107 characters.
	longest := filepath.Join(n.dir, "kubelet", "pod-resources", "kubelet.sock")
	must.That(len(longest) <= 107, "the cluster's directory is too long for the sockets of a node: %s", longest)
	c.mu.Lock()
	if c.stopped || c.nodes[name] != nil {
		c.mu.Unlock()
		return nil, fmt.Errorf("node %s: the cluster is stopped, or already has a node of this name", name)
	}

	c.nodes[name] = n
	c.mu.Unlock()
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start node %s: %w", name, err), n.Stop())
	}

	return n, nil
}

func (n *Node) start(ctx context.Context) (err error) {
	defer must.Catch(&err)

	must.OK(os.RemoveAll(n.dir))
	for _, dir := range []string{"cni", "kubelet", "pki", "manifests", "log/pods", "volumeplugins"} {
		must.OK(os.MkdirAll(filepath.Join(n.dir, dir), 0o755))
	}

	n.kubeconfig = must.Get(n.cluster.NodeKubeconfig(n.name))
	n.healthz = must.Get(n.cluster.ports.take())
	port := must.Get(n.cluster.ports.take())
	must.OK(n.makeNetwork())
	must.OK(n.makeCgroup())
	must.OK(n.writeConfigs(port))
	program := must.Get(n.cluster.buildHelper(ctx, "sleep"))
	must.OK(n.StartRuntime(ctx))
	sleep := image.Image{References: []string{PauseImage, SleepImage}, Programs: []image.Program{{Path: "/sleep", File: program}}}

	return n.importImage(ctx, sleep)
}

// Name returns the node's name in the API.
func (n *Node) Name() string { return n.name }

// Dir returns the directory with all files of this node.
func (n *Node) Dir() string { return n.dir }

// KubeletPath returns the path of the stock kubelet.
func (n *Node) KubeletPath() string { return n.cluster.kubelet }

// KubeletConfig returns the path of the KubeletConfiguration that KubeletArgs
// names.
func (n *Node) KubeletConfig() string { return filepath.Join(n.dir, "kubelet.yaml") }

// Kubeconfig returns the path of the kubeconfig of the node's own identity.
func (n *Node) Kubeconfig() string { return n.kubeconfig }

// RuntimeEndpoint returns the address of the node's containerd.
func (n *Node) RuntimeEndpoint() string { return "unix://" + n.socket() }

// HealthzPort returns the port of the kubelet's healthz on 127.0.0.1.
func (n *Node) HealthzPort() int { return n.healthz }

// KubeletArgs returns the flags that a kubelet has on a stock node.
func (n *Node) KubeletArgs() []string {
	args := []string{
		"--config=" + n.KubeletConfig(),
		"--kubeconfig=" + n.kubeconfig,
		"--hostname-override=" + n.name,
		"--root-dir=" + filepath.Join(n.dir, "kubelet"),
		"--cert-dir=" + filepath.Join(n.dir, "pki"),
		"--v=2",
	}
	if ip := primaryIP(); ip != "" {
		args = append(args, "--node-ip="+ip) // otherwise the kubelet resolves the node's name with DNS
	}

	return args
}

// primaryIP returns the source address for packets to other machines; "" if
// there is none. It sends nothing.
func primaryIP() string {
	conn, err := net.Dial("udp", "192.0.2.1:9")
	if err != nil {
		return ""
	}

	defer conn.Close()
	address, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok || !address.IP.IsGlobalUnicast() {
		return ""
	}

	return address.IP.String()
}

// StartRuntime starts containerd, unless it runs already, and waits until it
// answers.
func (n *Node) StartRuntime(ctx context.Context) error {
	cmd := exec.Command(n.programs.containerd, "--config", filepath.Join(n.dir, "containerd.toml"))
	// containerd and the shim find their programs (the shim, iptables) in the
	// PATH.
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":"+strings.Join(sbin, ":"))
	answers := func(ctx context.Context) error { return n.ctr(ctx, "version") }

	return n.containerd.start(ctx, "containerd", filepath.Join(n.dir, "log", "containerd.log"), cmd, answers)
}

// StopRuntime stops containerd, if it runs. Containers keep running, as on
// every node.
func (n *Node) StopRuntime() { n.containerd.stop() }

// RuntimePID returns the process ID of containerd; 0 if it does not run.
func (n *Node) RuntimePID() int { return n.containerd.pid() }

// Stop stops containerd and removes everything of the node outside of its
// directory: every process with the directory on its command line (also a
// kubelet or an agent), pods, mounts, the network, the cgroup. Logs stay until
// the cluster's directory is removed. Further calls do nothing.
func (n *Node) Stop() (err error) {
	n.stop.Do(func() {
		n.containerd.end()
		if err = sweep.Node(n.dir); err != nil {
			err = fmt.Errorf("stop node %s: %w", n.name, err)
		}

		n.cluster.mu.Lock()
		defer n.cluster.mu.Unlock()
		delete(n.cluster.nodes, n.name)
	})

	return err
}

func (n *Node) socket() string { return filepath.Join(n.dir, "containerd.sock") }

func (n *Node) ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, n.programs.ctr, append([]string{"--address", n.socket(), "--connect-timeout=1s", "--namespace", "k8s.io"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}

	return nil
}

// ImportImage makes an image with one static program of this machine, and
// imports it into the node's containerd, where the kubelet finds it.
func (n *Node) ImportImage(ctx context.Context, reference, pathInImage, program string) error {
	i := image.Image{References: []string{reference}, Programs: []image.Program{{Path: pathInImage, File: program}}}
	if err := n.importImage(ctx, i); err != nil {
		return fmt.Errorf("import image %s: %w", reference, err)
	}

	return nil
}

func (n *Node) importImage(ctx context.Context, i image.Image) (err error) {
	defer must.Catch(&err)

	archive, _ := must.Get2(i.Archive())
	file := filepath.Join(n.dir, "image.tar")
	defer os.Remove(file)
	must.OK(os.WriteFile(file, archive, 0o644))

	return n.ImportArchive(ctx, file)
}

// ImportArchive imports an archive of images, such as `make image` writes, into
// the node's containerd.
func (n *Node) ImportArchive(ctx context.Context, file string) error {
	return n.ctr(ctx, "images", "import", "--snapshotter=overlayfs", file)
}

// The configurations of a node's kubelet, containerd and CNI, with variables.
var (
	//go:embed kubelet.yaml
	kubeletConfig string
	//go:embed containerd.toml
	containerdConfig string
	// It has no masquerading, which would leave rules in the machine's tables:
	// pods do not need other networks.
	//
	//go:embed cni.conflist
	cniConfig string
)

// writeConfigs writes the configurations.
func (n *Node) writeConfigs(port int) error {
	variables := map[string]string{
		"NODE": n.dir, "CA": n.cluster.ca.file("ca.crt"), "CGROUP": n.cgroup, "PORT": strconv.Itoa(port), "HEALTHZ": strconv.Itoa(n.healthz),
		"PAUSE": PauseImage, "CNI": n.programs.cni, "RUNC": n.programs.runc, "BRIDGE": n.bridge, "SUBNET": n.subnet,
	}
	write := func(name, text string) error {
		text = os.Expand(text, func(name string) string { return variables[name] })
		return os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o644)
	}

	return errors.Join(
		write("resolv.conf", "nameserver 127.0.0.1\n"),
		write("kubelet.yaml", kubeletConfig),
		write("containerd.toml", containerdConfig),
		write("cni/10-bridge.conflist", cniConfig),
	)
}

// The requirements of a node on its machine: programs, a cgroup, a network.

var (
	sbin    = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin"} // of Debian's packages; of everything else
)

// programs are the required programs of the machine.
type programs struct{ containerd, ctr, runc, cni string }

// findPrograms finds the required programs. The error wraps ErrNoNode and names
// everything that is missing, so the message of a skipped test says what to
// install.
func findPrograms() (programs, error) {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}

	path := append(filepath.SplitList(os.Getenv("PATH")), sbin...)
	find := func(name string) string {
		for _, dir := range path {
			if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(found) {
				return found
			}
		}

		missing = append(missing, name)

		return ""
	}
	p := programs{containerd: find("containerd"), ctr: find("ctr"), runc: find("runc")}
	find("containerd-shim-runc-v2")
	if i := slices.IndexFunc(cniDirs, hasPlugins); i >= 0 {
		p.cni = cniDirs[i]
	} else {
		missing = append(missing, "CNI plugins (bridge, host-local, loopback) in "+strings.Join(cniDirs, " or "))
	}
	if len(missing) > 0 {
		return programs{}, fmt.Errorf("%w: missing %s", ErrNoNode, strings.Join(missing, ", "))
	}

	return p, nil
}

func hasPlugins(dir string) bool {
	for _, plugin := range []string{"bridge", "host-local", "loopback"} {
		if _, err := exec.LookPath(filepath.Join(dir, plugin)); err != nil {
			return false
		}
	}

	return true
}

// makeNetwork chooses a subnet for the node's pods. It creates the bridge
// before CNI would: the subnet is part of the bridge's name, so creating the
// bridge reserves the subnet on this machine.
func (n *Node) makeNetwork() (err error) {
	defer must.Catch(&err)

	const subnets = 512 // networks of 256 addresses in 198.18.0.0/15, which is not routed
	start := rand.IntN(subnets)
	for i := range subnets {
		subnet := (start + i) % subnets
		bridge := fmt.Sprintf("evkbr%d", subnet)
		// Before the bridge exists, so that a cleanup always finds its name.
		must.OK(n.writeSweepFile(sweep.BridgeFile, bridge))
		err := sweep.AddBridge(bridge)
		if err == nil {
			n.bridge, n.subnet = bridge, fmt.Sprintf("198.%d.%d.0/24", 18+subnet/256, subnet%256)
			return nil
		}

		// The bridge belongs to another node: a cleanup must not remove it.
		must.OK(os.Remove(filepath.Join(n.dir, sweep.BridgeFile)))
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}

	return errors.New("no free subnet for pods")
}

// makeCgroup makes the root cgroup of this node, so that kubelets on the same
// machine do not remove each other's pods as orphans. The kubelet requires that
// the cgroup exists.
func (n *Node) makeCgroup() (err error) {
	defer must.Catch(&err)

	n.cgroup = strings.Replace(n.bridge, "evkbr", "evk", 1) // the bridge's name is unique on this machine
	must.OK(n.writeSweepFile(sweep.CgroupFile, n.cgroup))
	mounts := must.Get(sweep.Mounts())
	made := false
	for _, m := range mounts {
		switch {
		case m.Type == "cgroup2" && m.Path == "/sys/fs/cgroup":
			for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"} {
				// Errors are ignored: the controller may be missing or already
				// enabled, and the kubelet reports what it misses.
				_ = os.WriteFile(filepath.Join(m.Path, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
			}
		case m.Type == "cgroup":
		default:
			continue // the second hierarchy of a hybrid machine is not used
		}

		dir := filepath.Join(m.Path, n.cgroup)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}

		made = true
		must.OK(inheritCPUs(m.Path, dir))
	}

	if !made {
		return fmt.Errorf("%w: no cgroup hierarchy is mounted", ErrNoNode)
	}

	return nil
}

// inheritCPUs copies the parent's CPUs and memory nodes to a new cpuset of
// cgroup v1, which cannot run anything without them.
func inheritCPUs(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		data, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, os.ErrNotExist) {
			continue // another controller, or version 2
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
			return err
		}
	}

	return nil
}

func (n *Node) writeSweepFile(file, content string) error {
	return os.WriteFile(filepath.Join(n.dir, file), []byte(content), 0o644)
}
