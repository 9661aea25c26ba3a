// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Risk is something about nodes that is risky without any change.
type Risk struct {
	Members
	ID    string `json:"id"`
	Wrong string `json:"wrong"`
	Do    string `json:"do"`

	order int
}

// supportEnds are the days on which upstream's support of minor versions ends. Source: kubernetes.io/releases/patch-releases, up to 1.34
// the published day, and from 1.35 on the end of the fourteenth month after the release. As of supportAsOf.
var supportEnds = map[int]string{
	32: "2026-02-28", 33: "2026-06-28", 34: "2026-10-27", 35: "2027-02-28", 36: "2027-06-28", 37: "2027-10-28",
}

const supportAsOf = "2026-11-28"

// bootsV1 matches the names of operating systems that boot with cgroup v1 by default.
var bootsV1 = regexp.MustCompile(`^(CentOS Linux 7|Amazon Linux 2$|(Red Hat Enterprise|Rocky|AlmaLinux|Oracle).* 8\.|Ubuntu (18|20)\.|Debian GNU/Linux (9|10)\b)`)

var minorVersion = regexp.MustCompile(`^v?1\.(\d+)\.`)

// surveyed is a node with its configuration, which is nil if it is not known.
type surveyed struct {
	Node
	fields map[string]any
	minor  int // of the kubelet's version; 0: not known
	now    time.Time
}

// lookup returns a field of the configuration; nil if it is not set.
func (s surveyed) lookup(path ...string) (value any) {
	value = s.fields
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return value
}

func (s surveyed) number(path string) int64 {
	n, _ := s.lookup(path).(json.Number)
	i, _ := n.Int64()
	return i
}

// reserves reports whether kubeReserved or systemReserved has some of a resource. A value that cannot be read counts.
func (s surveyed) reserves(name string) bool {
	return slices.ContainsFunc([]string{"kubeReserved", "systemReserved"}, func(field string) bool {
		text, _ := s.lookup(field, name).(string)
		q, err := resource.ParseQuantity(text)
		return text != "" && (err != nil || !q.IsZero())
	})
}

// checks find risks, the gravest first. wrong is empty where there is none. Those with config need the configuration.
var checks = []struct {
	id     string
	config bool
	wrong  func(s surveyed) string
	do     string
}{
	{"anonymousAuthentication", true, func(s surveyed) string {
		switch open := s.lookup("authorization", "mode") == "AlwaysAllow"; {
		case s.lookup("authentication", "anonymous", "enabled") == true && open:
			return "anonymous authentication is on and authorization.mode is AlwaysAllow: whoever reaches the kubelet's port runs commands in every pod"
		case s.lookup("authentication", "anonymous", "enabled") == true:
			return "anonymous authentication is on: requests without credentials have the rights of system:anonymous"
		case open:
			return "authorization.mode is AlwaysAllow: every authenticated caller runs commands in every pod"
		}
		return ""
	}, "set authentication.anonymous.enabled: false and authorization.mode: Webhook"},
	{"readOnlyPort", true, func(s surveyed) string {
		if port := s.number("readOnlyPort"); port != 0 {
			return fmt.Sprintf("the read-only port %d is open: it shows all pods to everyone who reaches it", port)
		}
		return ""
	}, "set readOnlyPort: 0, after its users, such as old metrics collectors, use the authenticated port"},
	{"unsupportedKubelet", false, func(s surveyed) string {
		end, known := supportEnds[s.minor]
		oldest := slices.Min(slices.Collect(maps.Keys(supportEnds)))
		switch {
		case s.minor == 0 || known && s.now.Format(time.DateOnly) <= end || !known && s.minor > oldest:
			return ""
		case !known:
			end = "before " + supportEnds[oldest]
		}
		return fmt.Sprintf("kubelet 1.%d is past upstream's support, which ended %s (table of %s, kubernetes.io/releases)", s.minor, end, supportAsOf)
	}, "plan an upgrade; --component-binary kubelet=PATH judges these configurations with the next version"},
	{"certificateRotation", true, func(s surveyed) string {
		if s.lookup("rotateCertificates") == true {
			return ""
		}
		return "certificate rotation is off: if the kubelet has a client certificate, the node becomes NotReady when that expires"
	}, "set rotateCertificates: true, unless the credentials come from a plugin of the cloud or another program renews them"},
	{"noReservedMemory", true, func(s surveyed) string {
		if s.reserves("memory") {
			return ""
		}
		return "no memory is reserved for the system and the kubelet: pods can make them run out of memory"
	}, "set kubeReserved.memory or systemReserved.memory"},
	{"noReservedCPU", true, func(s surveyed) string {
		if list, _ := s.lookup("reservedSystemCPUs").(string); list != "" || s.reserves("cpu") {
			return ""
		}
		return "no CPU is reserved for the system and the kubelet: pods can starve them"
	}, "set kubeReserved.cpu or systemReserved.cpu"},
	{"maxPodsAbovePodCIDR", true, func(s surveyed) string {
		for _, prefix := range s.podCIDRs {
			host := prefix.Addr().BitLen() - prefix.Bits()
			if most := s.number("maxPods"); host < 31 && most > 1<<host-2 {
				return fmt.Sprintf("maxPods is %d, and a pod CIDR of /%d has %d addresses for pods: later pods stay in ContainerCreating",
					most, prefix.Bits(), max(0, 1<<host-2))
			}
		}
		return ""
	}, "lower maxPods, unless the network plugin takes addresses from elsewhere than the Node's podCIDR"},
	{"cgroupV1", true, func(s surveyed) string {
		const since = 35 // the default of failCgroupV1 is true
		switch off := s.lookup("failCgroupV1") != true; {
		case strings.HasPrefix(s.OS, "Windows") || !off:
		case s.minor >= since && s.lookup("failCgroupV1") == false:
			return "failCgroupV1 is false, so the machine may run on cgroup v1, which kubelets give up"
		case s.minor < since && bootsV1.MatchString(s.OS):
			return s.OS + " boots with cgroup v1 by default: kubelets from 1.35 on do not start there"
		}
		return ""
	}, "look at the type of /sys/fs/cgroup (stat -fc %T): tmpfs is v1; move these machines to cgroup v2"},
	{"failSwapOn", true, func(s surveyed) string {
		if s.lookup("failSwapOn") != false {
			return ""
		}
		behavior, _ := s.lookup("memorySwap", "swapBehavior").(string)
		return "failSwapOn is false: the kubelet also starts on a machine with swap (memorySwap.swapBehavior: " + cmp.Or(behavior, "NoSwap") + ")"
	}, "set failSwapOn: true, or decide on memorySwap.swapBehavior and watch the machines' use of swap"},
}

// riskFinder collects risks.
type riskFinder struct {
	now     time.Time
	byWords map[string]*Risk
}

func (f riskFinder) find(n Node, fields map[string]any) {
	s := surveyed{Node: n, fields: fields, now: f.now}
	if m := minorVersion.FindStringSubmatch(n.Kubelet); m != nil {
		s.minor, _ = strconv.Atoi(m[1])
	}
	for i, c := range checks {
		if c.config && fields == nil {
			continue
		}
		wrong := c.wrong(s)
		if wrong == "" {
			continue
		}
		if f.byWords[wrong] == nil {
			f.byWords[wrong] = &Risk{ID: c.id, Wrong: wrong, Do: c.do, order: i}
		}
		f.byWords[wrong].add(n)
	}
}

// sorted returns the risks, the gravest first.
func (f riskFinder) sorted() []*Risk {
	return slices.SortedFunc(maps.Values(f.byWords), func(a, b *Risk) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Wrong, b.Wrong))
	})
}
