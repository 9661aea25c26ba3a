// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
	"github.com/evenkeel/evenkeel/testkit/must"
)

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

// makeNetwork chooses a subnet for the node's pods and writes the CNI
// configuration. It creates the bridge before CNI would: the subnet is part of
// the bridge's name, so creating the bridge reserves the subnet on this
// machine.
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
			return n.writeCNIConfig()
		}

		// The bridge belongs to another node: a cleanup must not remove it.
		must.OK(os.Remove(filepath.Join(n.dir, sweep.BridgeFile)))
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}

	return errors.New("no free subnet for pods")
}

func (n *Node) writeCNIConfig() error {
	// No masquerading: it would leave rules in the machine's tables, and pods
	// do not need other networks.
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
