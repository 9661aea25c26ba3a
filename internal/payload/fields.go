// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"maps"
	"strings"
)

// Field is a field of the upstream KubeletConfiguration.
type Field struct {
	Path      string // JSON names joined by dots, also for structs in lists
	Group     string // path in the grouped form: "resources.eviction"
	Protected string // why the field is protected by default; empty: it is not
	Limit     *Limit // allowed values of a protected field; nil: none
	Since     int    // minor version of the first kubelet with the field, if the upstream type of this build lacks it
	Effect    string // what a new value acts on, if a restart of the kubelet is not enough; empty: it is
}

// What a new value of a field acts on, if a restart of the kubelet is not
// enough.
const (
	newPods       = "acts on new pods only"
	newContainers = "acts on containers that start afterwards"
	registration  = "acts only when a node registers: existing nodes keep what they have"
	emptyNode     = "needs a drained node, unless no pod uses what it changes"
	eachGate      = "each gate decides: at the restart, or for new pods"
	notUsed       = "no kubelet since 1.33 uses it"
)

// Limit describes which values of a protected field are allowed. Allows gets
// decoded JSON values, nil if unset or unknown, and allows only numbers.
type Limit struct {
	Description string                      // allowed values for a message: "free up to 7"
	Allows      func(value, local any) bool // reports whether a payload may set value if the local value is local
}

// quietLog: from verbosity 8, client-go logs the bodies of responses.
var quietLog = &Limit{"free up to 7 or the local value", func(value, local any) bool {
	v, ok := integer(value)
	l, known := integer(local)
	return ok && (v <= 7 || known && v <= l)
}}

// tighterPIDs: the kubelet treats 0 and -1 as no limit.
var tighterPIDs = &Limit{"free up to the local value; -1 and 0 are no limit", func(value, local any) bool {
	v, ok := integer(value)
	l, known := integer(local)
	return ok && known && (l <= 0 || v > 0 && v <= l)
}}

// Fields are all fields of the upstream type, and of a preview of the next
// version, sorted by path. Structs are listed by their fields; a mapping with
// free keys is one field.
var Fields = []Field{
	{Path: "address", Group: "server", Protected: "where the kubelet's API listens, with readOnlyPort too"},
	{Path: "allowedUnsafeSysctls", Group: "security", Protected: "lets pods set kernel parameters of the node"},
	{Path: "authentication.anonymous.enabled", Group: "security", Protected: "allows requests without credentials"},
	{Path: "authentication.webhook.cacheTTL", Group: "security", Protected: "how long a revoked token stays valid"},
	{Path: "authentication.webhook.enabled", Group: "security", Protected: "whether tokens are checked with the API server"},
	{Path: "authentication.x509.clientCAFile", Group: "security", Protected: "whose client certificates are trusted"},
	{Path: "authorization.mode", Group: "security", Protected: "AlwaysAllow lets every caller run commands in every pod"},
	{Path: "authorization.webhook.cacheAuthorizedTTL", Group: "security", Protected: "how long a revoked permission stays valid"},
	{Path: "authorization.webhook.cacheUnauthorizedTTL", Group: "security", Protected: "how long a denial is cached"},
	{Path: "cgroupDriver", Group: "resources.cgroups", Effect: emptyNode},
	{Path: "cgroupRoot", Group: "resources.cgroups", Effect: emptyNode,
		Protected: "the parent cgroup of all pods: with another one, pods escape the limits that the node sets on it"},
	{Path: "cgroupsPerQOS", Group: "resources.cgroups", Effect: emptyNode,
		Protected: "off: pods have no cgroup of their own, and podPidsLimit has no effect"},
	{Path: "clientCertificateKeyAlgorithm", Group: "security",
		Protected: "the kind of key in the node's credentials, from their next renewal on", Since: 38},
	{Path: "clusterDNS", Group: "networking", Effect: newPods, Protected: "the pods' DNS servers decide where their traffic goes"},
	{Path: "clusterDomain", Group: "networking", Effect: newPods,
		Protected: "completes the DNS names that pods look up, which decides where their traffic goes"},
	{Path: "configMapAndSecretChangeDetectionStrategy", Group: "cluster"},
	{Path: "containerLogMaxFiles", Group: "logging"},
	{Path: "containerLogMaxSize", Group: "logging"},
	{Path: "containerLogMaxWorkers", Group: "logging"},
	{Path: "containerLogMonitorInterval", Group: "logging"},
	{Path: "containerRuntimeEndpoint", Group: "runtime", Protected: "the runtime at this endpoint runs every pod and receives its secrets"},
	{Path: "contentType", Group: "cluster"},
	{Path: "cpuCFSQuota", Group: "resources", Effect: newPods},
	{Path: "cpuCFSQuotaPeriod", Group: "resources", Effect: newPods},
	{Path: "cpuManagerPolicy", Group: "resources.managers", Effect: emptyNode},
	{Path: "cpuManagerPolicyOptions", Group: "resources.managers", Effect: emptyNode},
	{Path: "cpuManagerReconcilePeriod", Group: "resources.managers"},
	{Path: "crashLoopBackOff.maxContainerRestartPeriod", Group: "runtime"},
	{Path: "defaultPodSysctls", Group: "security", Effect: newPods, Protected: "sets kernel parameters of all pods, bypassing admission"},
	{Path: "enableContentionProfiling", Group: "debugging"},
	{Path: "enableControllerAttachDetach", Group: "storage"},
	{Path: "enableDebugFlagsHandler", Group: "debugging", Protected: "lets callers change how much the kubelet logs"},
	{Path: "enableDebuggingHandlers", Group: "debugging", Protected: "opens exec, attach, port forwarding and logs on the kubelet's API"},
	{Path: "enableProfilingHandler", Group: "debugging", Protected: "lets callers profile the kubelet's memory"},
	{Path: "enableServer", Group: "server", Protected: "opens the kubelet's API"},
	{Path: "enableSystemLogHandler", Group: "debugging", Protected: "lets callers read the node's /var/log"},
	{Path: "enableSystemLogQuery", Group: "debugging", Protected: "lets callers read the logs of the node's services"},
	{Path: "enforceNodeAllocatable", Group: "resources.reservations"},
	{Path: "eventBurst", Group: "events"},
	{Path: "eventRecordQPS", Group: "events"},
	{Path: "evictionHard", Group: "resources.eviction"},
	{Path: "evictionMaxPodGracePeriod", Group: "resources.eviction"},
	{Path: "evictionMinimumReclaim", Group: "resources.eviction"},
	{Path: "evictionPressureTransitionPeriod", Group: "resources.eviction"},
	{Path: "evictionSoft", Group: "resources.eviction"},
	{Path: "evictionSoftGracePeriod", Group: "resources.eviction"},
	{Path: "failCgroupV1", Group: "resources.cgroups"},
	{Path: "failSwapOn", Group: "resources"},
	{Path: "featureGates", Group: "experimental", Effect: eachGate},
	{Path: "fileCheckFrequency", Group: "staticPods"},
	{Path: "hairpinMode", Group: "networking", Effect: notUsed},
	{Path: "healthzBindAddress", Group: "server", Protected: "can expose a port without authentication to the network"},
	{Path: "healthzPort", Group: "server", Protected: "health checks use this port and would trust any other program that listens there"},
	{Path: "httpCheckFrequency", Group: "staticPods"},
	{Path: "imageGCHighThresholdPercent", Group: "images"},
	{Path: "imageGCLowThresholdPercent", Group: "images"},
	{Path: "imageMaximumGCAge", Group: "images"},
	{Path: "imageMinimumGCAge", Group: "images"},
	{Path: "imagePullCredentialsVerificationPolicy", Group: "images", Protected: "lets pods use images that they could not pull"},
	{Path: "imageServiceEndpoint", Group: "runtime", Protected: "the image service at this endpoint decides what an image contains"},
	{Path: "iptablesDropBit", Group: "networking", Effect: notUsed},
	{Path: "iptablesMasqueradeBit", Group: "networking", Effect: notUsed},
	{Path: "kernelMemcgNotification", Group: "resources.eviction"},
	{Path: "kubeAPIBurst", Group: "cluster"},
	{Path: "kubeAPIQPS", Group: "cluster"},
	{Path: "kubeReserved", Group: "resources.reservations"},
	{Path: "kubeReservedCgroup", Group: "resources.reservations",
		Protected: "enforceNodeAllocatable sets limits on it, and it can name any cgroup of the node"},
	{Path: "kubeletCgroups", Group: "resources.cgroups", Protected: "moves the kubelet into another cgroup, with the limits of that cgroup"},
	{Path: "localStorageCapacityIsolation", Group: "storage", Protected: "off: limits of pods on local storage are not enforced"},
	{Path: "logging.flushFrequency", Group: "logging"},
	{Path: "logging.format", Group: "logging"},
	{Path: "logging.options.json.infoBufferSize", Group: "logging"},
	{Path: "logging.options.json.splitStream", Group: "logging"},
	{Path: "logging.options.text.infoBufferSize", Group: "logging"},
	{Path: "logging.options.text.splitStream", Group: "logging"},
	{Path: "logging.verbosity", Group: "logging", Protected: "from 8, the kubelet logs bodies of API responses, including Secrets",
		Limit: quietLog},
	{Path: "logging.vmodule.filePattern", Group: "logging",
		Protected: "raises the verbosity of single source files beyond that of logging.verbosity"},
	{Path: "logging.vmodule.verbosity", Group: "logging",
		Protected: "raises the verbosity of single source files beyond that of logging.verbosity"},
	{Path: "makeIPTablesUtilChains", Group: "networking",
		Protected: "off: removes the rule that blocks network access to the node's loopback addresses"},
	{Path: "maxOpenFiles", Group: "resources"},
	{Path: "maxParallelImagePulls", Group: "images"},
	{Path: "maxPods", Group: "resources"},
	{Path: "memoryManagerPolicy", Group: "resources.managers", Effect: emptyNode},
	{Path: "memoryReservationPolicy", Group: "resources", Effect: newPods},
	{Path: "memorySwap.swapBehavior", Group: "resources", Effect: newContainers},
	{Path: "memoryThrottlingFactor", Group: "resources", Effect: newContainers},
	{Path: "mergeDefaultEvictionSettings", Group: "resources.eviction"},
	{Path: "nodeLeaseDurationSeconds", Group: "node"},
	{Path: "nodeStatusMaxImages", Group: "node"},
	{Path: "nodeStatusReportFrequency", Group: "node"},
	{Path: "nodeStatusUpdateFrequency", Group: "node"},
	{Path: "oomScoreAdj", Group: "resources"},
	{Path: "podCIDR", Group: "networking", Protected: "the addresses of pods, which firewalls and network policies match"},
	{Path: "podLogsDir", Group: "logging", Effect: newContainers, Protected: "a directory where the kubelet writes as root"},
	{Path: "podPidsLimit", Group: "resources", Effect: newPods, Protected: "without a limit one pod can use up the process IDs of the node",
		Limit: tighterPIDs},
	{Path: "podsPerCore", Group: "resources"},
	{Path: "port", Group: "server", Protected: "firewalls match the port of the kubelet's API"},
	{Path: "preloadedImagesVerificationAllowlist", Group: "images", Protected: "lets pods use images that they could not pull"},
	{Path: "protectKernelDefaults", Group: "security", Protected: "off: the kubelet changes the node's kernel settings"},
	{Path: "providerID", Group: "node", Effect: registration,
		Protected: "the node's cloud instance, which decides about its disks, routes and deletion"},
	{Path: "qosReserved", Group: "resources.reservations"},
	{Path: "readOnlyPort", Group: "server", Protected: "shows all pods without authentication"},
	{Path: "registerNode", Group: "node", Effect: registration},
	{Path: "registerWithTaints.effect", Group: "node", Effect: registration, Protected: "keeps pods without a toleration off a new node"},
	{Path: "registerWithTaints.key", Group: "node", Effect: registration, Protected: "keeps pods without a toleration off a new node"},
	{Path: "registerWithTaints.timeAdded", Group: "node", Effect: registration, Protected: "keeps pods without a toleration off a new node"},
	{Path: "registerWithTaints.value", Group: "node", Effect: registration, Protected: "keeps pods without a toleration off a new node"},
	{Path: "registryBurst", Group: "images"},
	{Path: "registryPullQPS", Group: "images"},
	{Path: "reservedMemory.limits", Group: "resources.reservations", Effect: emptyNode},
	{Path: "reservedMemory.numaNode", Group: "resources.reservations", Effect: emptyNode},
	{Path: "reservedSystemCPUs", Group: "resources.reservations", Effect: emptyNode},
	{Path: "resolvConf", Group: "networking", Effect: newPods, Protected: "a file, read as root, with the DNS servers of pods"},
	{Path: "rotateCertificates", Group: "security", Protected: "whether the node's credentials are renewed"},
	{Path: "runOnce", Group: "runtime", Effect: notUsed},
	{Path: "runtimeRequestTimeout", Group: "runtime"},
	{Path: "seccompDefault", Group: "security", Effect: newContainers, Protected: "off: pods without a seccomp profile run unconfined"},
	{Path: "serializeImagePulls", Group: "images"},
	{Path: "serverCertificateKeyAlgorithm", Group: "security",
		Protected: "the kind of key that authenticates the kubelet's API, from its next certificate on", Since: 38},
	{Path: "serverTLSBootstrap", Group: "security", Protected: "whether the cluster signs the kubelet's serving certificate"},
	{Path: "showHiddenMetricsForVersion", Group: "debugging"},
	{Path: "shutdownGracePeriod", Group: "node"},
	{Path: "shutdownGracePeriodByPodPriority.priority", Group: "node"},
	{Path: "shutdownGracePeriodByPodPriority.shutdownGracePeriodSeconds", Group: "node"},
	{Path: "shutdownGracePeriodCriticalPods", Group: "node"},
	{Path: "singleProcessOOMKill", Group: "resources", Effect: newContainers},
	{Path: "staticPodPath", Group: "staticPods", Protected: "static pods can be root on the node, bypassing admission"},
	{Path: "staticPodURL", Group: "staticPods", Protected: "static pods can be root on the node, bypassing admission"},
	{Path: "staticPodURLHeader", Group: "staticPods", Protected: "can change the pods that the server returns, and contains credentials"},
	{Path: "streamingConnectionIdleTimeout", Group: "server", Effect: notUsed},
	{Path: "syncFrequency", Group: "runtime"},
	{Path: "systemCgroups", Group: "resources.cgroups",
		Protected: "moves the node's other processes into another cgroup, with the limits of that cgroup"},
	{Path: "systemReserved", Group: "resources.reservations"},
	{Path: "systemReservedCgroup", Group: "resources.reservations",
		Protected: "enforceNodeAllocatable sets limits on it, and it can name any cgroup of the node"},
	{Path: "tlsCertFile", Group: "security", Protected: "authenticates the kubelet's API to its clients"},
	{Path: "tlsCipherSuites", Group: "security", Protected: "could allow weak ciphers"},
	{Path: "tlsCurvePreferences", Group: "security", Protected: "could allow weak key exchange"},
	{Path: "tlsMinVersion", Group: "security", Protected: "could allow old versions of TLS"},
	{Path: "tlsPrivateKeyFile", Group: "security", Protected: "authenticates the kubelet's API to its clients"},
	{Path: "topologyManagerPolicy", Group: "resources.managers"},
	{Path: "topologyManagerPolicyOptions", Group: "resources.managers"},
	{Path: "topologyManagerScope", Group: "resources.managers"},
	{Path: "tracing.endpoint", Group: "debugging", Protected: "who receives traces of the kubelet"},
	{Path: "tracing.samplingRatePerMillion", Group: "debugging", Protected: "how much is traced"},
	{Path: "userNamespaces.idsPerPod", Group: "security", Effect: emptyNode},
	{Path: "volumePluginDir", Group: "storage", Protected: "programs in this directory run as root"},
	{Path: "volumeStatsAggPeriod", Group: "storage"},
}

// name is a JSON name of the upstream type at one place. A leaf has no inner
// names.
type name struct {
	path   string
	effect string // of a new value; that of the first field of a struct
	inner  map[string]*name
}

// names is the tree of Fields. A list of structs has the fields of the struct.
var names = func() *name {
	root := &name{}
	for _, f := range Fields {
		n := root
		for part := range strings.SplitSeq(f.Path, ".") {
			next := n.inner[part]
			if next == nil {
				next = &name{path: strings.TrimPrefix(n.path+"."+part, "."), effect: f.Effect}
				if n.inner == nil {
					n.inner = map[string]*name{}
				}

				n.inner[part] = next
			}

			n = next
		}
	}

	return root
}()

// goNames are the Go names in the kubelet's internal type that differ from the
// JSON name not only in case.
var goNames = map[string]string{"ResolverConfig": "resolvConf"}

// IsStruct reports whether the field at a path of JSON names is a struct, and
// not a value or a mapping with free keys. It is false for a field that is not
// in Fields.
func IsStruct(path string) bool {
	field := lookupField(path)
	return field != nil && field.inner != nil
}

// Effect returns what a new value of the field at a path acts on, if a restart
// of the kubelet is not enough; otherwise, and for a field that is not in
// Fields, nothing.
func Effect(path string) string {
	if field := lookupField(path); field != nil {
		return field.effect
	}

	return ""
}

// Canonical replaces the Go field names of a printed configuration with the
// API's JSON names. Unknown names stay, and so does the second of two names for
// the same field.
func Canonical(printed map[string]any) map[string]any { return names.canonical(printed) }

func (n *name) canonical(printed map[string]any) map[string]any {
	if printed == nil {
		return nil
	}

	named := make(map[string]any, len(printed))
	for _, key := range keys(printed) {
		to, field := n.find(key)
		if field == nil {
			named[key] = printed[key]
			continue
		}

		_, given := printed[to]
		if _, done := named[to]; given || done {
			to = key
		}

		named[to] = field.canonicalValue(printed[key])
	}

	return named
}

func (n *name) canonicalValue(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if n.inner != nil {
			return n.canonical(v)
		}
	case []any:
		if n.inner != nil && v != nil {
			list := make([]any, len(v))
			for i := range v {
				list[i] = n.canonicalValue(v[i])
			}

			return list
		}
	}

	return value
}

// find returns a field and its JSON name for a key in any case; nil if there is
// none.
func (n *name) find(key string) (string, *name) {
	if field := n.inner[key]; field != nil {
		return key, field
	}
	if field := n.inner[goNames[key]]; field != nil {
		return goNames[key], field
	}

	for to, field := range n.inner {
		if strings.EqualFold(to, key) {
			return to, field
		}
	}

	return "", nil
}

// Merge returns a configuration with another one merged over it, as the kubelet
// merges drop-ins: mappings key by key, other values are replaced. Null values
// stay.
func Merge(under, over map[string]any) map[string]any {
	merged := map[string]any{}
	maps.Copy(merged, under)
	for name, value := range over {
		if fields, ok := value.(map[string]any); ok {
			below, _ := under[name].(map[string]any)
			value = Merge(below, fields)
		}

		merged[name] = value
	}

	return merged
}
