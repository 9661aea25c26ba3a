// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"
	resources "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// cause is why a pod is lost: the kubelet's reason, and a message.
type cause struct{ reason, message string }

func because(reason, format string, args ...any) *cause {
	return &cause{reason: reason, message: fmt.Sprintf(format, args...)}
}

// safeSysctls are the sysctls that need no permission, with the kernel and the
// minor version of the kubelet since when (pkg/kubelet/sysctl/safe_sysctls.go).
var safeSysctls = map[string]struct {
	kernel string
	minor  int
}{
	"kernel.shm_rmid_forced":              {},
	"net.ipv4.ip_local_port_range":        {},
	"net.ipv4.ip_local_reserved_ports":    {kernel: "3.16"},
	"net.ipv4.ip_unprivileged_port_start": {},
	"net.ipv4.ping_group_range":           {},
	"net.ipv4.tcp_fin_timeout":            {kernel: "4.6"},
	"net.ipv4.tcp_keepalive_intvl":        {kernel: "4.5"},
	"net.ipv4.tcp_keepalive_probes":       {kernel: "4.5"},
	"net.ipv4.tcp_keepalive_time":         {kernel: "4.5"},
	"net.ipv4.tcp_notsent_lowat":          {kernel: "4.6", minor: 37},
	"net.ipv4.tcp_rmem":                   {kernel: "4.15"},
	"net.ipv4.tcp_slow_start_after_idle":  {kernel: "4.15", minor: 37},
	"net.ipv4.tcp_syncookies":             {},
	"net.ipv4.tcp_wmem":                   {kernel: "4.15"},
}

// sysctls applies the allowlist of sysctls (pkg/kubelet/sysctl/allowlist.go).
func (n *node) sysctls(p *pod) *cause {
	if p.Spec.SecurityContext == nil {
		return nil
	}

	for _, s := range p.Spec.SecurityContext.Sysctls {
		name := sysctl.NormalizeName(s.Name)
		namespaces := n.allowedSysctl(name)
		if len(namespaces) == 0 {
			return because("SysctlForbidden", "the sysctl %s is not allowed", name)
		}

		for _, namespace := range namespaces {
			if namespace == sysctl.IPCNamespace && p.Spec.HostIPC || namespace == sysctl.NetNamespace && p.Spec.HostNetwork ||
				namespace == sysctl.UserNamespace && (p.Spec.HostUsers == nil || *p.Spec.HostUsers) && n.gates.minor >= 37 {
				return because("SysctlForbidden", "the sysctl %s is not allowed in the host's %s namespace", name, namespace)
			}
		}
	}

	return nil
}

// allowedSysctl returns the namespaces of the names and patterns that allow the
// sysctl; none: it is not allowed. The kubelet uses an arbitrary pattern of
// several that match.
func (n *node) allowedSysctl(name string) (namespaces []sysctl.Namespace) {
	if safe, ok := safeSysctls[name]; ok && n.gates.minor >= safe.minor && n.kernelAtLeast(safe.kernel) {
		namespace, _, _ := sysctl.GetNamespace(name)
		namespaces = append(namespaces, namespace)
	}

	for _, entry := range list(n.in.After, "allowedUnsafeSysctls") {
		pattern, _ := entry.(string)
		namespace, prefix, isPrefix := sysctl.GetNamespace(pattern)
		if prefix == name || isPrefix && strings.HasPrefix(name, prefix) {
			namespaces = append(namespaces, namespace)
		}
	}

	return namespaces
}

func (n *node) kernelAtLeast(oldest string) bool {
	if oldest == "" {
		return true
	}

	kernel, err := version.ParseGeneric(n.Status.NodeInfo.KernelVersion)

	return err == nil && kernel.AtLeast(version.MustParseGeneric(oldest))
}

// features applies the checks of the operating system and of
// SupplementalGroupsPolicy, which come before the comparison with the node's
// resources (pkg/kubelet/lifecycle/predicate.go, Admit).
func (n *node) features(p *pod) *cause {
	if name, ok := p.Labels[corev1.LabelOSStable]; ok && name != "linux" {
		return because("PodOSSelectorNodeLabelDoesNotMatch", "the pod's label %s is %q", corev1.LabelOSStable, name)
	}
	if p.Spec.OS != nil && p.Spec.OS.Name != corev1.Linux {
		return because("PodOSNotSupported", "the pod is for %s", p.Spec.OS.Name)
	}

	if s := p.Spec.SecurityContext; s != nil && s.SupplementalGroupsPolicy != nil &&
		*s.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		if f := n.Status.Features; f == nil || f.SupplementalGroupsPolicy == nil || !*f.SupplementalGroupsPolicy {
			return because("SupplementalGroupsPolicyNotSupported", "the container runtime does not support supplementalGroupsPolicy: Strict")
		}
	}

	return nil
}

// placement applies the scheduler's predicates that the kubelet repeats, after
// the resources.
func (n *node) placement(p *pod) *cause {
	if p.Spec.NodeSelector != nil || p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil {
		affinity := nodeaffinity.GetRequiredNodeAffinity(p.Pod)
		matches, err := affinity.Match(n.Node)
		if err == nil && matches && p.static && n.gates.minor < 35 {
			// These kubelets may admit a static pod before they have seen the
			// Node, and ask no more.
			if matches, err = affinity.Match(n.initial); err == nil && !matches {
				return because("NodeAffinity", "the static pod's node selector or affinity needs labels that the kubelet does not know when it starts")
			}
		}

		if err != nil || !matches {
			return because("NodeAffinity", "%s", n.unmatched(p))
		}
	}

	if p.Spec.NodeName != "" && p.Spec.NodeName != n.Name {
		return because("NodeName", "the pod is bound to %s", p.Spec.NodeName)
	}
	if port, other := n.ports.conflict(p); other != nil {
		return because("NodePorts", "the host port %d is also a port of %s/%s", port, other.Namespace, other.Name)
	}

	if !p.static && len(n.noExecute) > 0 {
		if taint, found := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, n.noExecute, p.Spec.Tolerations, nil,
			n.gates.on("TaintTolerationComparisonOperators")); found {
			return because("TaintToleration", "the pod does not tolerate the taint %s", taint.ToString())
		}
	}

	return nil
}

// unmatched says which label the pod misses on the node: the first by name of
// its node selector, otherwise one of its affinity.
func (n *node) unmatched(p *pod) string {
	for _, key := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
		switch label, ok := n.Labels[key]; {
		case !ok:
			return fmt.Sprintf("the pod's node selector needs %s=%s, and the node has no label %s", key, p.Spec.NodeSelector[key], key)
		case label != p.Spec.NodeSelector[key]:
			return fmt.Sprintf("the pod's node selector needs %s=%s, and the node has %s=%s", key, p.Spec.NodeSelector[key], key, label)
		}
	}

	return "the node's labels do not match the pod's required node affinity"
}

// initialNode returns the Node that a kubelet knows before it has seen the API
// server's: default labels, and those of a flag.
func initialNode(n *corev1.Node, flag map[string]string) *corev1.Node {
	labels := map[string]string{}
	for _, name := range []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable} {
		if value, ok := n.Labels[name]; ok {
			labels[name] = value
		}
	}

	maps.Copy(labels, flag)

	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels}}
}

// hostPort is a port of the node on an address; without an address it stands
// for the port on any of them.
type hostPort struct {
	protocol corev1.Protocol
	number   int32
	address  string
}

// portUsers has the pods that have a host port.
type portUsers map[hostPort][]*pod

const anyAddress = "0.0.0.0"

// hostPorts returns the host ports of containers and sidecars.
func hostPorts(p *pod) (ports []hostPort) {
	add := func(c *corev1.Container) {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				ports = append(ports, hostPort{cmp.Or(port.Protocol, corev1.ProtocolTCP), port.HostPort, cmp.Or(port.HostIP, anyAddress)})
			}
		}
	}
	for c := range pointers(p.Spec.Containers) {
		add(c)
	}

	for c := range pointers(p.Spec.InitContainers) {
		if isSidecar(c) {
			add(c)
		}
	}

	return ports
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func portsOf(pods []*pod) portUsers {
	users := portUsers{}
	for _, p := range pods {
		for _, port := range hostPorts(p) {
			for _, address := range []string{port.address, ""} {
				port.address = address
				if of := users[port]; len(of) == 0 || of[len(of)-1] != p { // each pod once
					users[port] = append(of, p)
				}
			}
		}
	}

	return users
}

// conflict returns a host port of the pod that another pod has too, and that
// pod; nil if there is none.
func (u portUsers) conflict(p *pod) (number int32, other *pod) {
	for _, port := range hostPorts(p) {
		addresses := []string{port.address, anyAddress}
		if port.address == anyAddress {
			addresses = []string{""}
		}

		for _, port.address = range addresses {
			for _, user := range u[port] {
				if user != p {
					return port.number, user
				}
			}
		}
	}

	return 0, nil
}

// lateHandlers applies the handlers after the predicates: AppArmor, pod-level
// resources and declared features.
func (n *node) lateHandlers(p *pod) *cause {
	// A static pod has no status from the API, and counts as pending although
	// it runs.
	if (p.static || p.Status.Phase == corev1.PodPending || p.Status.Phase == "") && n.in.Machine.NoAppArmor && needsAppArmor(p) {
		return because("AppArmor", "the pod needs AppArmor, which the kernel does not have enabled")
	}
	if n.gates.minor >= 34 && !n.gates.on("PodLevelResources") && resources.IsPodLevelResourcesSet(p.Pod) {
		return because("PodLevelResourcesNotSupported", "the pod has pod-level resources and the feature gate PodLevelResources is off")
	}
	if feature := n.missingFeature(p); feature != "" {
		return because("PodFeatureUnsupported", "the node does not have the feature %s, which the pod needs", feature)
	}

	return nil
}

// declaredFeatures are the features of a node that pods can need, with the
// first minor version that compares them. Those of the container runtime are
// known only from the present declaration.
var declaredFeatures = []struct {
	name      string // also of the gate
	since     int
	ofRuntime bool
	needs     func(*corev1.Pod) bool
}{
	{"RestartAllContainersOnContainerExits", 0, false, func(p *corev1.Pod) bool { return hasAny(allContainers(p), restartsAll) }},
	{"UserNamespacesHostNetworkSupport", 36, true, func(p *corev1.Pod) bool {
		return p.Spec.HostNetwork && p.Spec.HostUsers != nil && !*p.Spec.HostUsers
	}},
	{"VolumeBindMountOptions", 37, true, func(p *corev1.Pod) bool { return hasAny(allContainers(p), hasMountOptions) }},
	{"PodCertificateMLDSA", 38, false, func(p *corev1.Pod) bool { return slices.ContainsFunc(p.Spec.Volumes, hasMLDSAKey) }},
	{"SecurityProfileOCI", 38, true, usesOCIProfile},
}

// missingFeature returns the name of a feature that the pod needs and the node
// will not declare.
func (n *node) missingFeature(p *pod) string {
	if !n.gates.on("NodeDeclaredFeatures") {
		return ""
	}

	for _, f := range declaredFeatures {
		available := n.gates.on(f.name) && (!f.ofRuntime || slices.Contains(n.Status.DeclaredFeatures, f.name))
		if n.gates.minor >= f.since && !available && f.needs(p.Pod) {
			return f.name
		}
	}

	return ""
}

func restartsAll(c *corev1.Container) bool {
	return slices.ContainsFunc(c.RestartPolicyRules, func(rule corev1.ContainerRestartRule) bool {
		return rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers
	})
}

func hasMountOptions(c *corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return len(m.BindMountOptions) > 0 })
}

func hasMLDSAKey(v corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
		return s.PodCertificate != nil && strings.HasPrefix(s.PodCertificate.KeyType, "MLDSA")
	})
}

func usesOCIProfile(p *corev1.Pod) bool {
	oci := func(s *corev1.SeccompProfile) bool { return s != nil && s.Type == "OCI" }
	container := func(s *corev1.SecurityContext) bool { return s != nil && oci(s.SeccompProfile) }
	return p.Spec.SecurityContext != nil && oci(p.Spec.SecurityContext.SeccompProfile) ||
		hasAny(allContainers(p), func(c *corev1.Container) bool { return container(c.SecurityContext) }) ||
		slices.ContainsFunc(p.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return container(c.SecurityContext) })
}

func needsAppArmor(p *pod) bool {
	confined := func(profile *corev1.AppArmorProfile) bool {
		return profile != nil && profile.Type != corev1.AppArmorProfileTypeUnconfined
	}
	container := func(c *corev1.Container) bool {
		return c.SecurityContext != nil && confined(c.SecurityContext.AppArmorProfile)
	}
	if s := p.Spec.SecurityContext; s != nil && confined(s.AppArmorProfile) || hasAny(allContainers(p.Pod), container) {
		return true
	}

	for name, value := range p.Annotations {
		if strings.HasPrefix(name, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) &&
			value != corev1.DeprecatedAppArmorBetaProfileNameUnconfined {
			return true
		}
	}

	return false
}
