// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// supportEnds are the days on which upstream's support of minor versions ends.
// Source: kubernetes.io/releases/patch-releases, up to 1.34 the published day,
// and from 1.35 on the end of the fourteenth month after the release. As of
// supportAsOf.
var supportEnds = map[int]string{
	32: "2026-02-28", 33: "2026-06-28", 34: "2026-10-27", 35: "2027-02-28", 36: "2027-06-28", 37: "2027-10-28",
}

const (
	supportAsOf = "2026-11-28"
	oldestEnd   = 32
)

// bootsV1 matches the names of operating systems that boot with cgroup v1 by
// default.
var bootsV1 = regexp.MustCompile(`^(CentOS Linux 7|Amazon Linux 2$|(Red Hat Enterprise|Rocky|AlmaLinux|Oracle).* 8\.|Ubuntu (18|20)\.|Debian GNU/Linux (9|10)\b)`)

// minorOf returns the minor version of a node's kubelet; 0 if it is not known.
func minorOf(n Node) int {
	v, err := version.ParseGeneric(n.Kubelet)
	if err != nil {
		return 0
	}

	return int(v.Minor())
}

// surveyed is a node with its configuration, which is nil if it is not known.
type surveyed struct {
	Node
	fields component.Effective
	minor  int // of the kubelet's version; 0: not known
	today  string
}

// value returns a field of the configuration; nil if it is not set.
func (s surveyed) value(path string) any {
	value, _ := s.fields.Field(path)
	return value
}

// reserves reports whether kubeReserved or systemReserved has some of a
// resource. A value that cannot be read counts.
func (s surveyed) reserves(name string) bool {
	return slices.ContainsFunc([]string{"kubeReserved", "systemReserved"}, func(field string) bool {
		text := s.fields.String(field + "[" + name + "]")
		q, err := payload.ParseQuantity(text)
		return text != "" && (err != nil || !q.IsZero())
	})
}

// unsupported is the ID of the only risk that does not depend on the
// configuration.
const unsupported = "unsupportedKubelet"

func when(is bool, words string) string {
	if is {
		return words
	}

	return ""
}

// checks find risks, the gravest first. wrong is empty where there is none.
var checks = []struct {
	id, do string
	wrong  func(s surveyed) string
}{
	{"anonymousAuthentication", "set authentication.anonymous.enabled: false", func(s surveyed) string {
		return when(s.value("authentication.anonymous.enabled") == true,
			"anonymous authentication is on: requests without credentials have the rights of system:anonymous")
	}},
	{"alwaysAllow", "set authorization.mode: Webhook", func(s surveyed) string {
		return when(s.fields.String("authorization.mode") == "AlwaysAllow",
			"authorization.mode is AlwaysAllow: everyone who can log in to the kubelet's port runs commands in every pod")
	}},
	{"readOnlyPort", "set readOnlyPort: 0, after its users, such as old metrics collectors, use the other port", func(s surveyed) string {
		port, _ := s.fields.Int("readOnlyPort")
		return when(port != 0, fmt.Sprintf("the read-only port %d is open: it shows all pods to everyone who reaches it", port))
	}},
	{unsupported, "plan an upgrade; --component-binary kubelet=PATH judges with the next version", func(s surveyed) string {
		end, known := supportEnds[s.minor]
		if !known && s.minor < oldestEnd {
			end = "before " + supportEnds[oldestEnd]
		}

		return when(s.minor > 0 && end != "" && (!known || s.today > end),
			fmt.Sprintf("upstream's support of kubelet 1.%d ended %s (kubernetes.io/releases, as of %s)", s.minor, end, supportAsOf))
	}},
	{"certificateRotation", "set rotateCertificates: true, unless something else renews the credentials", func(s surveyed) string {
		return when(s.value("rotateCertificates") != true,
			"certificate rotation is off: if the kubelet has a client certificate, the node becomes NotReady when that expires")
	}},
	{"noReservedMemory", "set kubeReserved.memory or systemReserved.memory", func(s surveyed) string {
		return when(!s.reserves("memory"), "no memory is reserved for the system and the kubelet: pods can make them run out of it")
	}},
	{"noReservedCPU", "set kubeReserved.cpu or systemReserved.cpu", func(s surveyed) string {
		return when(s.fields.String("reservedSystemCPUs") == "" && !s.reserves("cpu"),
			"no CPU is reserved for the system and the kubelet: pods can starve them")
	}},
	{"maxPodsAbovePodCIDR", "lower maxPods, unless the network plugin does not use the Node's podCIDR", func(s surveyed) string {
		maxPods, _ := s.fields.Int("maxPods")
		for _, prefix := range s.podCIDRs {
			host := prefix.Addr().BitLen() - prefix.Bits()
			if host < 31 && maxPods > 1<<host-2 {
				return fmt.Sprintf("maxPods is %d, and a pod CIDR of /%d has addresses for %s: more stay in ContainerCreating", maxPods,
					prefix.Bits(), printable.Count(max(0, 1<<host-2), "pod"))
			}
		}

		return ""
	}},
	{"cgroupV1", "look at the machine: stat -fc %T /sys/fs/cgroup prints tmpfs for v1; move it to cgroup v2", func(s surveyed) string {
		const since = 35 // failCgroupV1 is true by default
		fails := s.value("failCgroupV1")
		return when(fails == false && s.minor >= since, "failCgroupV1 is false: the machine may run on cgroup v1, which kubelets give up") +
			when(fails != true && s.minor < since && bootsV1.MatchString(s.OS),
				s.OS+" boots with cgroup v1, where kubelets from 1.35 on do not start by default")
	}},
	{"failSwapOn", "set failSwapOn: true, or decide on memorySwap.swapBehavior and watch the machine's swap", func(s surveyed) string {
		behavior := s.fields.String("memorySwap.swapBehavior")
		return when(s.value("failSwapOn") == false,
			"failSwapOn is false: the kubelet starts on a machine with swap (memorySwap.swapBehavior: "+cmp.Or(behavior, "NoSwap")+")")
	}},
}

// check adds the risks of a node; fields are nil if its configuration is not
// known.
func (f findings) check(n Node, fields map[string]any, now time.Time) {
	s := surveyed{Node: n, fields: fields, today: now.Format(time.DateOnly), minor: minorOf(n)}
	for i, c := range checks {
		if wrong := c.wrong(s); wrong != "" && (fields != nil || c.id == unsupported) {
			f.add(n, Finding{ID: c.id, Wrong: wrong, Do: c.do, order: i})
		}
	}
}
