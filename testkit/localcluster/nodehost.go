package localcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
)

// What a node needs of its machine: programs, a cgroup, a network.

var (
	sbin    = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin"} // Debian's packages; everybody else
)

// programs are what the machine has to have installed.
type programs struct{ containerd, ctr, runc, cni string }

// findPrograms looks for everything a node needs. The error wraps ErrNoNode and names all that is missing, so that
// whoever skips a test for it can say what to install.
func findPrograms(euid int, path, cni []string) (programs, error) {
	var missing []string
	if euid != 0 {
		missing = append(missing, "root")
	}
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
	for _, dir := range cni {
		if hasPlugins(dir) {
			p.cni = dir
			break
		}
	}
	if p.cni == "" {
		missing = append(missing, "CNI plugins (bridge, host-local, loopback) in "+strings.Join(cni, " or "))
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

// makeNetwork chooses a subnet for the node's pods and writes its CNI configuration. The bridge is made here and not
// by CNI: its name says the subnet, so that to make it is to reserve the subnet on this machine.
func (n *Node) makeNetwork() error {
	const subnets = 512 // the networks of 256 addresses in 198.18.0.0/15, which nobody routes
	start := rand.IntN(subnets)
	for i := range subnets {
		subnet := (start + i) % subnets
		bridge := fmt.Sprintf("evkbr%d", subnet)
		// Written before it is made: whoever cleans up must know it.
		if err := n.record(sweep.BridgeFile, bridge); err != nil {
			return err
		}
		err := sweep.AddBridge(bridge)
		if err == nil {
			n.bridge, n.subnet = bridge, fmt.Sprintf("198.%d.%d.0/24", 18+subnet/256, subnet%256)
			return n.writeCNIConfig()
		}
		// Not ours: nobody may remove it for us.
		if err := os.Remove(filepath.Join(n.dir, sweep.BridgeFile)); err != nil {
			return err
		}
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return errors.New("no free subnet for pods")
}

func (n *Node) writeCNIConfig() error {
	// No masquerading: it would leave rules in the machine's tables, and no pod here talks to the outside.
	config := fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": %q,
  "plugins": [{
    "type": "bridge",
    "bridge": %q,
    "isGateway": true,
    "ipMasq": false,
    "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]]}
  }]
}
`, n.bridge, n.bridge, filepath.Join(n.dir, "ipam"), n.subnet)
	return os.WriteFile(filepath.Join(n.dir, "cni", "10-bridge.conflist"), []byte(config), 0o644)
}

// makeCgroup makes the cgroup that is the root of all of this node's, so that two kubelets side by side don't take
// each other's pods for orphans. The kubelet demands that it exists.
func (n *Node) makeCgroup() error {
	n.cgroup = strings.Replace(n.bridge, "evkbr", "evk", 1) // the bridge is this machine's only one of its name
	if err := n.record(sweep.CgroupFile, n.cgroup); err != nil {
		return err
	}
	mounts, err := sweep.Mounts()
	if err != nil {
		return err
	}
	made := false
	for _, m := range mounts {
		switch {
		case m.Type == "cgroup2" && m.Path == "/sys/fs/cgroup":
			for _, controller := range []string{"cpu", "cpuset", "memory", "pids", "io", "hugetlb"} {
				// One that this kernel lacks, or that is on already, is none of our business: the kubelet says
				// what it misses.
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
		if err := inheritCPUs(m.Path, dir); err != nil {
			return err
		}
	}
	if !made {
		return fmt.Errorf("%w: no cgroup hierarchy is mounted", ErrNoNode)
	}
	return nil
}

// inheritCPUs gives a new cpuset of the first cgroup version what its parent has; without, nothing can run in it.
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

func (n *Node) record(file, content string) error {
	return os.WriteFile(filepath.Join(n.dir, file), []byte(content), 0o644)
}
