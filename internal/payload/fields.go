package payload

import "strings"

// Field is one field of the upstream KubeletConfiguration.
type Field struct {
	Path      string // JSON names, dots between; of a struct in a list too
	Group     string // where the grouped form has it: "resources.eviction"
	Protected string // why a payload may not change it by default; empty: it is free
	Limit     *Limit // of a protected field: which values are free nevertheless; nil: none
}

// Limit is of a field that gives something away only beyond some value. It looks at nothing but the two values, which are
// decoded JSON, nil if unset or unknown; what is not a number is never allowed.
type Limit struct {
	Words  string                      // what is free, as it stands in a refusal: "free up to 7"
	Allows func(value, local any) bool // reports whether a payload may make value of what is local
}

// quietLog: client-go logs the bodies of responses from verbosity 8 on.
var quietLog = &Limit{"free up to 7 or the local value", func(value, local any) bool {
	v, ok := integer(value)
	l, known := integer(local)
	return ok && (v <= 7 || known && v <= l)
}}

// tighterPIDs: the kubelet takes 0 for no limit, as it takes -1.
var tighterPIDs = &Limit{"free up to the local value; -1 and 0 are no limit", func(value, local any) bool {
	v, ok := integer(value)
	l, known := integer(local)
	return ok && known && (l <= 0 || v > 0 && v <= l)
}}

// Fields are all fields of the upstream type, sorted by path. A struct stands here with its own fields, a mapping with
// free keys as one.
var Fields = []Field{
	{Path: "address", Group: "server", Protected: "where the kubelet's API listens, with readOnlyPort too"},
	{Path: "allowedUnsafeSysctls", Group: "security", Protected: "lets pods set kernel parameters of the node"},
	{Path: "authentication.anonymous.enabled", Group: "security", Protected: "lets callers in that show no credentials"},
	{Path: "authentication.webhook.cacheTTL", Group: "security", Protected: "how long a withdrawn token stays good"},
	{Path: "authentication.webhook.enabled", Group: "security", Protected: "whether tokens are checked with the API server"},
	{Path: "authentication.x509.clientCAFile", Group: "security", Protected: "whose client certificates are believed"},
	{Path: "authorization.mode", Group: "security", Protected: "AlwaysAllow lets every caller run commands in every pod"},
	{Path: "authorization.webhook.cacheAuthorizedTTL", Group: "security", Protected: "how long a withdrawn right stays good"},
	{Path: "authorization.webhook.cacheUnauthorizedTTL", Group: "security", Protected: "how long a refusal stays"},
	{Path: "cgroupDriver", Group: "resources.cgroups"},
	{Path: "cgroupRoot", Group: "resources.cgroups", Protected: "all pods are below it: elsewhere they escape the limits that the node sets there"},
	{Path: "cgroupsPerQOS", Group: "resources.cgroups", Protected: "off: pods have no cgroup of their own, and podPidsLimit has no effect"},
	{Path: "clusterDNS", Group: "networking", Protected: "the server that answers pods' lookups decides where their traffic goes"},
	{Path: "clusterDomain", Group: "networking", Protected: "completes the names that pods look up, and so decides where their traffic goes"},
	{Path: "configMapAndSecretChangeDetectionStrategy", Group: "cluster"},
	{Path: "containerLogMaxFiles", Group: "logging"},
	{Path: "containerLogMaxSize", Group: "logging"},
	{Path: "containerLogMaxWorkers", Group: "logging"},
	{Path: "containerLogMonitorInterval", Group: "logging"},
	{Path: "containerRuntimeEndpoint", Group: "runtime", Protected: "what listens there runs every pod and is given its secrets"},
	{Path: "contentType", Group: "cluster"},
	{Path: "cpuCFSQuota", Group: "resources"},
	{Path: "cpuCFSQuotaPeriod", Group: "resources"},
	{Path: "cpuManagerPolicy", Group: "resources.managers"},
	{Path: "cpuManagerPolicyOptions", Group: "resources.managers"},
	{Path: "cpuManagerReconcilePeriod", Group: "resources.managers"},
	{Path: "crashLoopBackOff.maxContainerRestartPeriod", Group: "runtime"},
	{Path: "defaultPodSysctls", Group: "security", Protected: "sets kernel parameters of all pods, past admission"},
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
	{Path: "featureGates", Group: "experimental"},
	{Path: "fileCheckFrequency", Group: "staticPods"},
	{Path: "hairpinMode", Group: "networking"},
	{Path: "healthzBindAddress", Group: "server", Protected: "opens a port without authentication to the network"},
	{Path: "healthzPort", Group: "server", Protected: "what watches the kubelet asks this port, and would believe any other program there"},
	{Path: "httpCheckFrequency", Group: "staticPods"},
	{Path: "imageGCHighThresholdPercent", Group: "images"},
	{Path: "imageGCLowThresholdPercent", Group: "images"},
	{Path: "imageMaximumGCAge", Group: "images"},
	{Path: "imageMinimumGCAge", Group: "images"},
	{Path: "imagePullCredentialsVerificationPolicy", Group: "images", Protected: "lets pods use images that they could not pull"},
	{Path: "imageServiceEndpoint", Group: "runtime", Protected: "what listens there decides what is in an image"},
	{Path: "iptablesDropBit", Group: "networking"},
	{Path: "iptablesMasqueradeBit", Group: "networking"},
	{Path: "kernelMemcgNotification", Group: "resources.eviction"},
	{Path: "kubeAPIBurst", Group: "cluster"},
	{Path: "kubeAPIQPS", Group: "cluster"},
	{Path: "kubeReserved", Group: "resources.reservations"},
	{Path: "kubeReservedCgroup", Group: "resources.reservations", Protected: "enforceNodeAllocatable sets limits on it: any cgroup of the node could be named"},
	{Path: "kubeletCgroups", Group: "resources.cgroups", Protected: "moves the kubelet's process into another cgroup, under the limits of that"},
	{Path: "localStorageCapacityIsolation", Group: "storage", Protected: "off: limits of pods on local storage are not enforced"},
	{Path: "logging.flushFrequency", Group: "logging"},
	{Path: "logging.format", Group: "logging"},
	{Path: "logging.options.json.infoBufferSize", Group: "logging"},
	{Path: "logging.options.json.splitStream", Group: "logging"},
	{Path: "logging.options.text.infoBufferSize", Group: "logging"},
	{Path: "logging.options.text.splitStream", Group: "logging"},
	{Path: "logging.verbosity", Group: "logging", Protected: "from 8 on the kubelet logs bodies of API responses, with the Secrets in them", Limit: quietLog},
	{Path: "logging.vmodule.filePattern", Group: "logging", Protected: "raises the verbosity of single source files beyond that of logging.verbosity"},
	{Path: "logging.vmodule.verbosity", Group: "logging", Protected: "raises the verbosity of single source files beyond that of logging.verbosity"},
	{Path: "makeIPTablesUtilChains", Group: "networking", Protected: "with it goes the rule that keeps the network off the node's loopback addresses"},
	{Path: "maxOpenFiles", Group: "resources"},
	{Path: "maxParallelImagePulls", Group: "images"},
	{Path: "maxPods", Group: "resources"},
	{Path: "memoryManagerPolicy", Group: "resources.managers"},
	{Path: "memoryReservationPolicy", Group: "resources"},
	{Path: "memorySwap.swapBehavior", Group: "resources"},
	{Path: "memoryThrottlingFactor", Group: "resources"},
	{Path: "mergeDefaultEvictionSettings", Group: "resources.eviction"},
	{Path: "nodeLeaseDurationSeconds", Group: "node"},
	{Path: "nodeStatusMaxImages", Group: "node"},
	{Path: "nodeStatusReportFrequency", Group: "node"},
	{Path: "nodeStatusUpdateFrequency", Group: "node"},
	{Path: "oomScoreAdj", Group: "resources"},
	{Path: "podCIDR", Group: "networking", Protected: "the addresses of pods, by which firewalls and policies know them"},
	{Path: "podLogsDir", Group: "logging", Protected: "where the kubelet writes as root"},
	{Path: "podPidsLimit", Group: "resources", Protected: "without a limit one pod can use up the process IDs of the node", Limit: tighterPIDs},
	{Path: "podsPerCore", Group: "resources"},
	{Path: "port", Group: "server", Protected: "firewalls know the kubelet's API by its port"},
	{Path: "preloadedImagesVerificationAllowlist", Group: "images", Protected: "lets pods use images that they could not pull"},
	{Path: "protectKernelDefaults", Group: "security", Protected: "off: the kubelet changes the node's kernel settings"},
	{Path: "providerID", Group: "node", Protected: "the cloud machine that the node claims to be: disks, routes and deletion go by it"},
	{Path: "qosReserved", Group: "resources.reservations"},
	{Path: "readOnlyPort", Group: "server", Protected: "shows all pods without authentication"},
	{Path: "registerNode", Group: "node"},
	{Path: "registerWithTaints.effect", Group: "node", Protected: "keeps pods off a new node that are not meant for it"},
	{Path: "registerWithTaints.key", Group: "node", Protected: "keeps pods off a new node that are not meant for it"},
	{Path: "registerWithTaints.timeAdded", Group: "node", Protected: "keeps pods off a new node that are not meant for it"},
	{Path: "registerWithTaints.value", Group: "node", Protected: "keeps pods off a new node that are not meant for it"},
	{Path: "registryBurst", Group: "images"},
	{Path: "registryPullQPS", Group: "images"},
	{Path: "reservedMemory.limits", Group: "resources.reservations"},
	{Path: "reservedMemory.numaNode", Group: "resources.reservations"},
	{Path: "reservedSystemCPUs", Group: "resources.reservations"},
	{Path: "resolvConf", Group: "networking", Protected: "a file, read as root, whose name servers answer pods' lookups"},
	{Path: "rotateCertificates", Group: "security", Protected: "whether the node's credentials are renewed"},
	{Path: "runOnce", Group: "runtime"},
	{Path: "runtimeRequestTimeout", Group: "runtime"},
	{Path: "seccompDefault", Group: "security", Protected: "off: pods that name no seccomp profile have none"},
	{Path: "serializeImagePulls", Group: "images"},
	{Path: "serverTLSBootstrap", Group: "security", Protected: "whether the cluster vouches for the kubelet's serving certificate"},
	{Path: "showHiddenMetricsForVersion", Group: "debugging"},
	{Path: "shutdownGracePeriod", Group: "node"},
	{Path: "shutdownGracePeriodByPodPriority.priority", Group: "node"},
	{Path: "shutdownGracePeriodByPodPriority.shutdownGracePeriodSeconds", Group: "node"},
	{Path: "shutdownGracePeriodCriticalPods", Group: "node"},
	{Path: "singleProcessOOMKill", Group: "resources"},
	{Path: "staticPodPath", Group: "staticPods", Protected: "pods from there are root on the node, past all admission"},
	{Path: "staticPodURL", Group: "staticPods", Protected: "pods from there are root on the node, past all admission"},
	{Path: "staticPodURLHeader", Group: "staticPods", Protected: "decides which pods that server answers with, and holds credentials"},
	{Path: "streamingConnectionIdleTimeout", Group: "server"},
	{Path: "syncFrequency", Group: "runtime"},
	{Path: "systemCgroups", Group: "resources.cgroups", Protected: "moves the node's other processes into another cgroup, under the limits of that"},
	{Path: "systemReserved", Group: "resources.reservations"},
	{Path: "systemReservedCgroup", Group: "resources.reservations", Protected: "enforceNodeAllocatable sets limits on it: any cgroup of the node could be named"},
	{Path: "tlsCertFile", Group: "security", Protected: "what the kubelet's API proves itself with"},
	{Path: "tlsCipherSuites", Group: "security", Protected: "could allow weak ciphers"},
	{Path: "tlsCurvePreferences", Group: "security", Protected: "could allow weak key exchange"},
	{Path: "tlsMinVersion", Group: "security", Protected: "could allow old versions of TLS"},
	{Path: "tlsPrivateKeyFile", Group: "security", Protected: "what the kubelet's API proves itself with"},
	{Path: "topologyManagerPolicy", Group: "resources.managers"},
	{Path: "topologyManagerPolicyOptions", Group: "resources.managers"},
	{Path: "topologyManagerScope", Group: "resources.managers"},
	{Path: "tracing.endpoint", Group: "debugging", Protected: "who is told what the kubelet does"},
	{Path: "tracing.samplingRatePerMillion", Group: "debugging", Protected: "how much of it is told"},
	{Path: "userNamespaces.idsPerPod", Group: "security"},
	{Path: "volumePluginDir", Group: "storage", Protected: "programs in there are run as root"},
	{Path: "volumeStatsAggPeriod", Group: "storage"},
}

// name is one JSON name of the upstream type, at its place. One without inner names is a leaf.
type name struct {
	path  string
	inner map[string]*name
}

// names is Fields as a tree. Lists do not show in it: what is in a list of structs is where the list is.
var names = func() *name {
	root := &name{}
	for _, f := range Fields {
		n := root
		for _, part := range strings.Split(f.Path, ".") {
			next := n.inner[part]
			if next == nil {
				next = &name{path: strings.TrimPrefix(n.path+"."+part, ".")}
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

// goNames are the fields whose Go name in the kubelet's internal type is not their JSON name in another case.
var goNames = map[string]string{"ResolverConfig": "resolvConf"}

// IsStruct reports whether the field at a path of JSON names is a struct, whose fields have paths of their own, and not a
// value or a mapping with free keys. It is false for a field that is not in Fields.
func IsStruct(path string) bool {
	field := lookupField(path)
	return field != nil && field.inner != nil
}

// Canonical returns a configuration as the kubelet prints it (Go's field names) with the API's JSON names. What the
// upstream type does not have, keeps its name; so does the second of two names that mean the same field.
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

// find returns the field that key means, whatever its case, and its JSON name; nil if there is none.
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
