// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeConfigStatus is what a node reports about its NodeConfig. Only the node's evenkeel-agent writes these fields. It
// writes when something changes and never as a heartbeat. The validation rules are looser than those of the spec, so
// that a node can always report what it was given. The whole status has at most 65536 bytes of JSON: the admission
// policy evenkeel-node refuses a larger one.
type NodeConfigStatus struct {
	// observedGeneration is the metadata.generation that this status reports on.
	// Absent if remoteConfig is not NodeConfig, because such a node ignores the
	// spec. Written by the agent.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// assigned is the configuration that the agent understands to be assigned.
	// Absent if it is the local configuration. Written by the agent.
	// +optional
	Assigned *ConfigRevision `json:"assigned,omitempty"`

	// active is the configuration that the kubelet runs. Absent if it is the local
	// configuration. Written by the agent.
	// +optional
	Active *ConfigRevision `json:"active,omitempty"`

	// lastKnownGood is the configuration that the node falls back to when a trial
	// fails. Absent if it is the local configuration. Written by the agent.
	// +optional
	LastKnownGood *LastKnownGoodConfig `json:"lastKnownGood,omitempty"`

	// error is the most recent error of the assigned configuration, in the
	// kubelet's own words if the kubelet rejected it. An agent writes at most 4096
	// bytes and omits the middle of a longer text. Absent if there is no error.
	// Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Error string `json:"error,omitempty"`

	// trial is the running trial of the active configuration. Absent if no trial
	// is running. Written by the agent.
	// +optional
	Trial *Trial `json:"trial,omitempty"`

	// badConfigs lists the newest configurations that failed on this node with its
	// current kubelet, newest first. The node does not try them again. Written by
	// the agent.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	BadConfigs []BadConfig `json:"badConfigs,omitempty"`

	// overriddenFields lists the fields of the active payload that have no effect
	// because a command-line flag of the kubelet overrides them. If there are more
	// than 100, the last entry is "and N more". Written by the agent.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=512
	OverriddenFields []string `json:"overriddenFields,omitempty"`

	// resolvedValues lists the values of the active payload that depend on the
	// machine, as the agent computed them. Absent if it has no rules. Written by
	// the agent.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	ResolvedValues []ResolvedValue `json:"resolvedValues,omitempty"`

	// remoteConfig is where this node takes remote configuration from. NodeConfig
	// is the spec of this object. ConfigMap is the node's own ConfigMap;
	// spec.configSource is then ignored. Disabled means that the node takes no
	// remote configuration. Rollouts skip nodes with ConfigMap or Disabled.
	// Written by the agent.
	// +optional
	RemoteConfig RemoteConfig `json:"remoteConfig,omitempty"`

	// runMode is the kind of agent that runs this node's kubelet. Host is an agent
	// that the init system starts. Bootstrap is the same, until a self-hosted
	// agent takes over. SelfHosted is an agent in a pod. Written by the agent.
	// +optional
	RunMode RunMode `json:"runMode,omitempty"`

	// componentVersion is the version of the kubelet, such as v1.36.3. Written by
	// the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ComponentVersion string `json:"componentVersion,omitempty"`

	// agentVersion is the version of the agent. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AgentVersion string `json:"agentVersion,omitempty"`

	// workloadPods is the number of pods on the node when this status was last
	// written, without static pods and pods of DaemonSets. A change of this number
	// alone does not update the status. Absent if the number is not known. Written
	// by the agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WorkloadPods *int64 `json:"workloadPods,omitempty"`

	// podsUnreadyOnRestart is the number of pods that a restart of the kubelet
	// would make unready until their next probe, as the agent counted them last:
	// at its start, before and during a trial, and about every hour where the
	// number is not of static pods alone. Up to kubelet 1.34, and later with the
	// feature gate ChangeContainerStatusOnKubeletRestart, these are the Ready pods
	// with a readiness or startup probe; otherwise only the static ones of them.
	// The version is that of the binary that starts next, the gate that of the
	// running configuration. A change of this number alone updates the status at
	// most every 30 minutes. Absent if the number is not known. Written by the
	// agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PodsUnreadyOnRestart *int64 `json:"podsUnreadyOnRestart,omitempty"`

	// defaultTrialSeconds is the length of a trial on this node if neither
	// spec.trial nor the configuration sets one. It is 0 if the node keeps a
	// configuration without a trial. Absent with agents that do not report it.
	// Written by the agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DefaultTrialSeconds *int64 `json:"defaultTrialSeconds,omitempty"`

	// preflight is the agent's answer to the request in the annotation
	// evenkeel.dev/preflight of this NodeConfig. Absent if it has answered none.
	// Written by the agent.
	// +optional
	Preflight *PreflightAnswer `json:"preflight,omitempty"`

	// drift is how the running kubelet and its local files compare with what the
	// agent started. The agent compares them about 15 seconds after the first start
	// of the kubelet and then at most every 10 minutes, and corrects nothing. The
	// condition Drifted has the result and the time since it is so. Absent until
	// the first comparison, and after a start that ended drift. Written by the
	// agent.
	// +optional
	Drift *Drift `json:"drift,omitempty"`

	// conditions holds ConfigOK. It is True if the assigned configuration is in
	// use and works, False if not, and Unknown if the agent cannot tell what is
	// assigned or whether it is valid. For tools that wait for objects of any
	// kind, it holds Ready, which is True if ConfigOK is True and no trial is
	// running, and Reconciling or Stalled where one of them is True. It also holds
	// KubeletLimited, with status
	// True, if the agent supports this node's kubelet only in part, and Drifted,
	// which is True if the running kubelet or its local files differ from what was
	// started; see drift. An agent writes messages of at most 4096 bytes; messages
	// of more than 8192 bytes are refused. Written by the agent.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AnnotationPreflight is the annotation of a NodeConfig that asks the node's agent whether it would adopt a revision. Its
// value is a PreflightRequest as JSON. Only evenkeel-controller writes it.
const AnnotationPreflight = "evenkeel.dev/preflight"

// PreflightVerdict is an agent's answer to a preflight request.
type PreflightVerdict string

// The answers to a preflight request.
const (
	PreflightAccepted PreflightVerdict = "Accepted" // the agent would adopt the revision
	PreflightRefused  PreflightVerdict = "Refused"  // it would not; the reason is one of ConfigOK
	PreflightUnknown  PreflightVerdict = "Unknown"  // it cannot tell
)

// PreflightAnswer is an agent's answer to a preflight request.
type PreflightAnswer struct {
	// uid is the uid of the request. Written by the agent.
	// +required
	// +kubebuilder:validation:MaxLength=128
	UID string `json:"uid"`

	// verdict is Accepted, Refused or Unknown. Written by the agent.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Verdict PreflightVerdict `json:"verdict"`

	// reason is the reason that the condition ConfigOK would have. Absent if the
	// verdict is Accepted. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Reason string `json:"reason,omitempty"`

	// message explains the reason, in the kubelet's own words if the kubelet
	// rejects the revision. If the verdict is Accepted, it says which fields of the
	// effective configuration change, as "maxPods: 110 -> 120". An agent writes at
	// most 1024 bytes. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Limits of a Drift. Longer lists end with "and N more".
const (
	MaxDriftFiles       = 5
	MaxDriftFields      = 10
	MaxDriftNotCompared = 200 // bytes; the CRD counts characters
)

// Drift is how the running kubelet and its local files compare with what the agent started.
type Drift struct {
	// notCompared is why the kubelet's /configz was not compared, such as a missing
	// right. Absent if it was compared. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=200
	NotCompared string `json:"notCompared,omitempty"`

	// files lists the files that were edited, added or removed since the kubelet
	// was started. If there are more than 5, the last entry is "and N more".
	// Written by the agent.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=512
	Files []string `json:"files,omitempty"`

	// fields lists the fields whose values in the kubelet's /configz differ from
	// the configuration that the agent started. If there are more than 10, the last
	// entry is "and N more". Written by the agent.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=512
	Fields []string `json:"fields,omitempty"`
}

// ConfigRevision identifies one configuration that came from a ConfigMap.
type ConfigRevision struct {
	// namespace is the namespace of the ConfigMap. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the ConfigMap. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// uid is the metadata.uid of the ConfigMap. Written by the agent.
	// +kubebuilder:validation:Type=string
	// +optional
	// +kubebuilder:validation:MaxLength=253
	UID types.UID `json:"uid,omitempty"`

	// sha256 is the digest of the payload, computed over the data key, a newline
	// and the bytes of the value, in hexadecimal digits. Absent until the agent
	// has read the payload. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256,omitempty"`

	// resolvedSHA256 is the digest of the values that the rules of the payload
	// give on this machine, in hexadecimal digits. Absent if the payload has no
	// rules. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ResolvedSHA256 string `json:"resolvedSHA256,omitempty"`
}

// ValuesSuffix returns how the revision of a configuration with rules ends. It is empty without rules.
func ValuesSuffix(resolvedSHA256 string) string {
	if resolvedSHA256 == "" {
		return ""
	}
	return "-" + resolvedSHA256[:min(12, len(resolvedSHA256))]
}

// MaxResolvedValues is how many values of a configuration can depend on the machine.
const MaxResolvedValues = 32

// ResolvedValue is a value that a rule of the configuration gives on this machine.
type ResolvedValue struct {
	// path is the field of the KubeletConfiguration, such as kubeReserved.memory.
	// Written by the agent.
	// +required
	// +kubebuilder:validation:MaxLength=128
	Path string `json:"path"`

	// value is the result, such as 1843Mi. Written by the agent.
	// +required
	// +kubebuilder:validation:MaxLength=32
	Value string `json:"value"`

	// from is the rule, such as "25% of the first 4Gi, 20% of the rest". Written by
	// the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	From string `json:"from,omitempty"`
}

// LastKnownGoodConfig is the configuration that a node falls back to when a trial fails.
type LastKnownGoodConfig struct {
	ConfigRevision `json:",inline"`

	// since is the time when the configuration passed its trial. Written by the
	// agent.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// Trial is the period in which a new configuration must prove itself.
type Trial struct {
	// startTime is the time when the node adopted the active configuration.
	// Written by the agent.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// healthySeconds is how long the agent has observed the kubelet to be healthy
	// with this configuration, when the status was last written. That is at least
	// once in each tenth of durationSeconds. Written by the agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	HealthySeconds int64 `json:"healthySeconds"`

	// durationSeconds is how long the kubelet must be observed healthy before the
	// configuration becomes last-known-good. A rollout waits for at most 604800
	// seconds (one week) of it. Written by the agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	DurationSeconds int64 `json:"durationSeconds"`

	// restarts is how many times the kubelet was restarted in this trial because
	// it exited or its machine went down. The start that adopted the configuration
	// is not counted. Written by the agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Restarts int64 `json:"restarts"`

	// crashLoopThreshold is how many restarts the trial tolerates. Written by the
	// agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	CrashLoopThreshold int64 `json:"crashLoopThreshold"`
}

// BadConfig is a configuration that failed on this node.
type BadConfig struct {
	// uid is the metadata.uid of the ConfigMap. Written by the agent.
	// +kubebuilder:validation:Type=string
	// +optional
	// +kubebuilder:validation:MaxLength=253
	UID types.UID `json:"uid,omitempty"`

	// revision is the key of the failed configuration, and the argument for
	// `evenkeel-agent forget`. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision,omitempty"`

	// namespace is the namespace of the ConfigMap. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the ConfigMap. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// time is the time of the verdict. Written by the agent.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// reason is the reason for the verdict, as a sentence. An agent writes at most
	// 2048 bytes and omits the middle of a longer text. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Reason string `json:"reason,omitempty"`

	// provisional reports whether the verdict can still be withdrawn. It is
	// withdrawn if last-known-good fails too before it was steadily healthy.
	// Written by the agent.
	// +optional
	Provisional bool `json:"provisional,omitempty"`
}

// RemoteConfig is where a node takes remote configuration from.
// +kubebuilder:validation:Enum=NodeConfig;ConfigMap;Disabled
type RemoteConfig string

const (
	// RemoteConfigNodeConfig is the spec of the node's NodeConfig.
	RemoteConfigNodeConfig RemoteConfig = "NodeConfig"
	// RemoteConfigConfigMap is the ConfigMap kubelet-NODE.
	// spec.configSource is ignored.
	RemoteConfigConfigMap RemoteConfig = "ConfigMap"
	// RemoteConfigDisabled means that the node takes no remote configuration,
	// because it opted out or has no directory to store it in.
	RemoteConfigDisabled RemoteConfig = "Disabled"
)

// RunMode is the kind of agent that runs the kubelet.
// +kubebuilder:validation:Enum=Host;Bootstrap;SelfHosted
type RunMode string

const (
	// RunModeHost is an agent that the node's init system starts.
	RunModeHost RunMode = "Host"
	// RunModeBootstrap is an agent that the node's init system starts, until a
	// self-hosted agent takes over.
	RunModeBootstrap RunMode = "Bootstrap"
	// RunModeSelfHosted is an agent in a pod.
	RunModeSelfHosted RunMode = "SelfHosted"
)
