package payload

import "strings"

// Field is one field of the upstream KubeletConfiguration.
type Field struct {
	Path      string // JSON names, dots between; of a struct in a list too
	Group     string // where the grouped form has it: "resources.eviction"
	Protected string // why a payload may not change it by default; empty: it is free
}

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
	{Path: "cgroupRoot", Group: "resources.cgroups"},
	{Path: "cgroupsPerQOS", Group: "resources.cgroups"},
	{Path: "clusterDNS", Group: "networking"},
	{Path: "clusterDomain", Group: "networking"},
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
	{Path: "healthzPort", Group: "server"},
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
	{Path: "kubeReservedCgroup", Group: "resources.reservations"},
	{Path: "kubeletCgroups", Group: "resources.cgroups"},
	{Path: "localStorageCapacityIsolation", Group: "storage"},
	{Path: "logging.flushFrequency", Group: "logging"},
	{Path: "logging.format", Group: "logging"},
	{Path: "logging.options.json.infoBufferSize", Group: "logging"},
	{Path: "logging.options.json.splitStream", Group: "logging"},
	{Path: "logging.options.text.infoBufferSize", Group: "logging"},
	{Path: "logging.options.text.splitStream", Group: "logging"},
	{Path: "logging.verbosity", Group: "logging"},
	{Path: "logging.vmodule.filePattern", Group: "logging"},
	{Path: "logging.vmodule.verbosity", Group: "logging"},
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
	{Path: "podCIDR", Group: "networking"},
	{Path: "podLogsDir", Group: "logging", Protected: "where the kubelet writes as root"},
	{Path: "podPidsLimit", Group: "resources"},
	{Path: "podsPerCore", Group: "resources"},
	{Path: "port", Group: "server", Protected: "firewalls know the kubelet's API by its port"},
	{Path: "preloadedImagesVerificationAllowlist", Group: "images", Protected: "lets pods use images that they could not pull"},
	{Path: "protectKernelDefaults", Group: "security", Protected: "off: the kubelet changes the node's kernel settings"},
	{Path: "providerID", Group: "node"},
	{Path: "qosReserved", Group: "resources.reservations"},
	{Path: "readOnlyPort", Group: "server", Protected: "shows all pods without authentication"},
	{Path: "registerNode", Group: "node"},
	{Path: "registerWithTaints.effect", Group: "node"},
	{Path: "registerWithTaints.key", Group: "node"},
	{Path: "registerWithTaints.timeAdded", Group: "node"},
	{Path: "registerWithTaints.value", Group: "node"},
	{Path: "registryBurst", Group: "images"},
	{Path: "registryPullQPS", Group: "images"},
	{Path: "reservedMemory.limits", Group: "resources.reservations"},
	{Path: "reservedMemory.numaNode", Group: "resources.reservations"},
	{Path: "reservedSystemCPUs", Group: "resources.reservations"},
	{Path: "resolvConf", Group: "networking"},
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
	{Path: "systemCgroups", Group: "resources.cgroups"},
	{Path: "systemReserved", Group: "resources.reservations"},
	{Path: "systemReservedCgroup", Group: "resources.reservations"},
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
