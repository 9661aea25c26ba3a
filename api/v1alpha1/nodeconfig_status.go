package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeConfigStatus is what a node makes of its NodeConfig. Every field is written by the node's evenkeel-agent alone,
// when something changes and never as a heartbeat. Its rules are looser than the spec's, so that a node can always
// tell what it was given. The whole status has at most 65536 bytes of JSON: the admission policy evenkeel-node refuses a
// larger one.
type NodeConfigStatus struct {
	// observedGeneration is the metadata.generation that this status answers.
	// Absent where remoteConfig is not NodeConfig: then it answers none. Written
	// by the agent.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// assigned is what the agent understands to be assigned to it. Absent:
	// local. Written by the agent.
	// +optional
	Assigned *AssignedConfig `json:"assigned,omitempty"`

	// active is what the kubelet runs. Absent: local. Written by the agent.
	// +optional
	Active *ConfigRevision `json:"active,omitempty"`

	// lastKnownGood is what a failed trial falls back to. Absent: local. Written
	// by the agent.
	// +optional
	LastKnownGood *LastKnownGoodConfig `json:"lastKnownGood,omitempty"`

	// local is what "local" means on this node: Init, a file that the node was
	// provisioned with, or Default, the kubelet's built-in defaults. Its
	// command-line flags belong to both. Written by the agent.
	// +optional
	Local LocalConfig `json:"local,omitempty"`

	// error is the newest thing that went wrong with what is assigned, in the
	// kubelet's own words where it is the kubelet that refuses. An agent writes
	// at most 4096 bytes and leaves out the middle of a longer text. Written by
	// the agent; absent if nothing is wrong.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Error string `json:"error,omitempty"`

	// trial is the trial of the active configuration. Written by the agent;
	// absent if none runs.
	// +optional
	Trial *Trial `json:"trial,omitempty"`

	// badConfigs are the newest configurations that failed on this node with the
	// kubelet that it has now, newest first. They are not tried again. Written
	// by the agent.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	BadConfigs []BadConfig `json:"badConfigs,omitempty"`

	// overriddenFields are fields of the active payload that have no effect,
	// because a command-line flag of the kubelet overrides them. If there are
	// more than 100, the last entry is "and N more". Written by the agent.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=512
	OverriddenFields []string `json:"overriddenFields,omitempty"`

	// remoteConfig is where this node takes remote configuration from:
	// NodeConfig, this object's spec; ConfigMap, a ConfigMap of its own, and
	// then spec.configSource is ignored; or Disabled, nowhere. Rollouts skip the
	// last two. Written by the agent.
	// +optional
	RemoteConfig RemoteConfig `json:"remoteConfig,omitempty"`

	// runMode is which kind of agent runs this node's kubelet: Host, started by
	// the init system; Bootstrap, the same until a self-hosted one takes over;
	// SelfHosted, in a pod. Written by the agent.
	// +optional
	RunMode RunMode `json:"runMode,omitempty"`

	// componentVersion is the kubelet's version, such as v1.36.3. Written by the
	// agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ComponentVersion string `json:"componentVersion,omitempty"`

	// agentVersion is the agent's own version. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AgentVersion string `json:"agentVersion,omitempty"`

	// workloadPods is how many pods ran on the node, without static pods and those
	// of DaemonSets, when this status was written last: it is not written anew
	// for a change of this number alone. Absent: not known. Written by the agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WorkloadPods *int64 `json:"workloadPods,omitempty"`

	// conditions holds ConfigOK: True, the assigned configuration is in use and
	// fine; False, it is not; Unknown, the agent cannot tell what is assigned or
	// whether it is valid. It also holds KubeletLimited, True, where the agent can
	// do less with this node's kubelet than with others. An agent writes messages of at most 4096 bytes; a node
	// cannot write one of more than 8192. Written by the agent.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConfigRevision is one configuration that came from a ConfigMap.
type ConfigRevision struct {
	// namespace of the ConfigMap. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace,omitempty"`

	// name of the ConfigMap. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// uid of the ConfigMap. Written by the agent.
	// +kubebuilder:validation:Type=string
	// +optional
	// +kubebuilder:validation:MaxLength=253
	UID types.UID `json:"uid,omitempty"`

	// sha256 of the payload: of the data key, a newline and the value's bytes,
	// in hexadecimal digits. Absent as long as the payload was not read. Written
	// by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256,omitempty"`

	// revision is what the node keys this configuration by: the ConfigMap's UID,
	// or, for a ConfigMap of the node's own, the UID, a dash and the first 12
	// digits of the payload's sha256. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision,omitempty"`
}

// AssignedConfig is the configuration that is assigned.
type AssignedConfig struct {
	ConfigRevision `json:",inline"`

	// rolloutRef is the rolloutRef that came with the assignment, if any.
	// Written by the agent.
	// +optional
	RolloutRef *RolloutReference `json:"rolloutRef,omitempty"`
}

// LastKnownGoodConfig is the configuration that a failed trial falls back to.
type LastKnownGoodConfig struct {
	ConfigRevision `json:",inline"`

	// since is when it passed its trial. Written by the agent.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// Trial is the time that a new configuration has to prove itself in.
type Trial struct {
	// startTime is when the active configuration was adopted. Written by the
	// agent.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// healthySeconds is how long the kubelet was observed healthy with it, as of
	// the last time that the status was written: it is not written anew for
	// every second. Written by the agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	HealthySeconds int64 `json:"healthySeconds"`

	// durationSeconds is how long it must be observed healthy to become
	// last-known-good. A rollout waits for a week of it at most. Written by the
	// agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	DurationSeconds int64 `json:"durationSeconds"`

	// restarts is how often the kubelet was started anew because it had exited,
	// or its machine had gone down, in this trial. The start that adopted the
	// configuration is not among them. Written by the agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Restarts int64 `json:"restarts"`

	// crashLoopThreshold is how many restarts the trial tolerates. Written by
	// the agent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	CrashLoopThreshold int64 `json:"crashLoopThreshold"`
}

// BadConfig is a configuration that failed on this node.
type BadConfig struct {
	// uid of the ConfigMap. Written by the agent.
	// +kubebuilder:validation:Type=string
	// +optional
	// +kubebuilder:validation:MaxLength=253
	UID types.UID `json:"uid,omitempty"`

	// revision that failed, the name to `evenkeel-agent forget` it by. Written
	// by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision,omitempty"`

	// namespace of the ConfigMap. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace,omitempty"`

	// name of the ConfigMap. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// time of the verdict. Written by the agent.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// reason for the verdict, as a sentence. An agent writes at most 2048 bytes
	// and leaves out the middle of a longer text. Written by the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Reason string `json:"reason,omitempty"`

	// provisional says that the verdict is taken back if last-known-good fails
	// too, before it was steadily healthy. Written by the agent.
	// +optional
	Provisional bool `json:"provisional,omitempty"`
}

// LocalConfig is what "local" means on a node.
// +kubebuilder:validation:Enum=Init;Default
type LocalConfig string

const (
	// LocalConfigInit: a file of the node's own, in --init-config-dir or the
	// kubelet's --config.
	LocalConfigInit LocalConfig = "Init"
	// LocalConfigDefault: the kubelet's built-in defaults and its flags.
	LocalConfigDefault LocalConfig = "Default"
)

// RemoteConfig is where a node takes remote configuration from.
// +kubebuilder:validation:Enum=NodeConfig;ConfigMap;Disabled
type RemoteConfig string

const (
	// RemoteConfigNodeConfig: from the spec of its NodeConfig.
	RemoteConfigNodeConfig RemoteConfig = "NodeConfig"
	// RemoteConfigConfigMap: from the ConfigMap kubelet-<node-name>;
	// spec.configSource is ignored.
	RemoteConfigConfigMap RemoteConfig = "ConfigMap"
	// RemoteConfigDisabled: from nowhere; the node opted out, or has no
	// directory to keep it in.
	RemoteConfigDisabled RemoteConfig = "Disabled"
)

// RunMode is which kind of agent runs the kubelet.
// +kubebuilder:validation:Enum=Host;Bootstrap;SelfHosted
type RunMode string

const (
	// RunModeHost: started by the node's init system, for good.
	RunModeHost RunMode = "Host"
	// RunModeBootstrap: started by the node's init system, until a self-hosted
	// agent takes over.
	RunModeBootstrap RunMode = "Bootstrap"
	// RunModeSelfHosted: in a pod.
	RunModeSelfHosted RunMode = "SelfHosted"
)
