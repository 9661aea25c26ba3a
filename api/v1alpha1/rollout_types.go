// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Labels of the ConfigMaps that hold a rollout's revisions. They only help to find the ConfigMaps: the rollout's status
// identifies its revisions by UID and sha256.
const (
	// LabelRollout is the name of the rollout whose revision the ConfigMap holds.
	LabelRollout = "evenkeel.dev/rollout"
	// LabelRevision is the revision's number. A content that becomes the target again gets the next number.
	LabelRevision = "evenkeel.dev/revision"
)

// AnnotationObserved is the annotation of a NodeConfig in which the controller records its observations of the node's
// assignment: the time since which the node has been healthy, or that it had failed before a retry. Only
// evenkeel-controller writes it.
const AnnotationObserved = "evenkeel.dev/observed"

// TaintDraining is the key of the taint that keeps new pods away from a Node while a rollout drains it, with the effect
// NoSchedule. Its value says which rollout drains the Node, for which revision, and since when. Only evenkeel-controller
// writes it.
const TaintDraining = "evenkeel.dev/draining"

// TaintUnconfigured is the default key of the startup taint: kubelets register with it, with the effect NoSchedule, and
// evenkeel-controller removes it when the node runs its configuration.
const TaintUnconfigured = "evenkeel.dev/unconfigured"

// Limits of a NodeConfigRollout, as in its CRD. Texts are counted in characters. Every writer of a status must respect them.
const (
	MaxSteps             = 30
	MaxFailedNodes       = 10
	MaxHistory           = 50
	MaxRetryNodes        = 1000
	MaxRolloutNameLength = 63
	MaxRolloutMessage    = 4096
	MaxOutcomeMessage    = 1024
	MaxReason            = 256 // of a request
	MaxFailedMessage     = 1024
)

// NodeConfigRollout rolls out one kubelet configuration to all nodes that a selector matches. It is desired state, not
// a job: nodes that join later get the configuration too. People write the spec. Only evenkeel-controller writes the
// status.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ncr
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Revision,type=integer,JSONPath=`.status.updateRevision.number`,description="Number of the revision that is being rolled out or is complete"
// +kubebuilder:printcolumn:name=Status,type=string,JSONPath=`.status.phase`,description="Phase of the rollout"
// +kubebuilder:printcolumn:name=Step,type=integer,JSONPath=`.status.step`,description="Finished steps"
// +kubebuilder:printcolumn:name=Nodes,type=integer,JSONPath=`.status.nodes.selected`,description="Number of nodes that the selector matches"
// +kubebuilder:printcolumn:name=Updated,type=integer,JSONPath=`.status.nodes.updated`,description="Number of nodes that have proven the revision"
// +kubebuilder:printcolumn:name=Failed,type=integer,JSONPath=`.status.nodes.failed`,description="Number of nodes on which the revision failed"
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=`.status.message`,description="Description of the phase, and the next action"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must have at most 63 characters and no dots, because revisions have it as a label: choose another name"
type NodeConfigRollout struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired configuration, its nodes, and the pace of the rollout.
	// Written by a person.
	// +required
	Spec NodeConfigRolloutSpec `json:"spec"`

	// status is the progress of the rollout. Only evenkeel-controller writes it.
	// Until then, observedGeneration is -1.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeConfigRolloutStatus `json:"status,omitempty"`
}

// NodeConfigRolloutList is a list of NodeConfigRollouts.
//
// +kubebuilder:object:root=true
type NodeConfigRolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeConfigRollout `json:"items"`
}

// NodeSelection selects nodes.
//
// +kubebuilder:validation:XValidation:rule="(has(self.allNodes) && self.allNodes) || (has(self.nodeSelector) && ((has(self.nodeSelector.matchLabels) && size(self.nodeSelector.matchLabels) > 0) || (has(self.nodeSelector.matchExpressions) && size(self.nodeSelector.matchExpressions) > 0)))",message="nodeSelector is empty and would select every node: give it labels, or set allNodes: true if every node is meant",fieldPath=".nodeSelector"
// +kubebuilder:validation:XValidation:rule="!(has(self.allNodes) && self.allNodes) || !has(self.nodeSelector) || ((!has(self.nodeSelector.matchLabels) || size(self.nodeSelector.matchLabels) == 0) && (!has(self.nodeSelector.matchExpressions) || size(self.nodeSelector.matchExpressions) == 0))",message="allNodes: true and a nodeSelector contradict each other: remove one",fieldPath=".allNodes"
type NodeSelection struct {
	// nodeSelector selects nodes by their labels. An empty selector is refused
	// unless allNodes is true.
	// +optional
	NodeSelector Selector `json:"nodeSelector,omitempty"`

	// allNodes selects every node. It must be true if nodeSelector is empty, and
	// false otherwise. Defaults to false.
	// +optional
	AllNodes bool `json:"allNodes,omitempty"`
}

// Selector selects objects by their labels. An empty selector matches every object.
//
// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="matchExpressions: operators are In and NotIn, with values, and Exists and DoesNotExist, without"
type Selector metav1.LabelSelector

// NodeConfigRolloutSpec is the configuration, the nodes that should run it, and the pace of the rollout.
//
// +kubebuilder:validation:XValidation:rule="!has(self.soakSeconds) || !has(self.progressDeadlineSeconds) || self.soakSeconds < self.progressDeadlineSeconds",message="progressDeadlineSeconds must be greater than soakSeconds, or soaking nodes would look stuck: raise progressDeadlineSeconds or lower soakSeconds",fieldPath=".progressDeadlineSeconds"
type NodeConfigRolloutSpec struct {
	NodeSelection `json:",inline"`

	// priority decides which rollout controls a node that several rollouts select:
	// the one with the highest priority, then the oldest, then the first by name.
	// A node that is in flight stays with its rollout until it is finished.
	// Defaults to 0.
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// template is the configuration. Exactly one of kubelet, kubeletDropIn and
	// configMapRef must be set. Each new content is a new revision.
	// +required
	// +structType=atomic
	Template RolloutTemplate `json:"template"`

	// pin makes an earlier revision the target in place of the template, as long
	// as the template does not change. A rollback with it survives a GitOps
	// controller that restores template. While the pinned revision's ConfigMap is
	// gone, no node moves. kubectl evenkeel rollout undo sets it.
	// +optional
	// +structType=atomic
	Pin *RolloutPin `json:"pin,omitempty"`

	// trial holds the settings for the trial on each node. The controller copies
	// them to spec.trial of the NodeConfig. A change creates no new revision and
	// applies to nodes that receive the target revision later. Nodes that receive
	// an older revision get no trial settings. Settings are refused if the
	// template has trial settings too.
	// +optional
	Trial *TrialTerms `json:"trial,omitempty"`

	// paused stops new assignments. Nodes in flight continue, nodes that join are
	// served, and a rollback finishes. Defaults to false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// pausedReason is why the rollout is paused, for people. It has no effect if
	// paused is false.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	PausedReason string `json:"pausedReason,omitempty"`

	// frozen stops all writes to NodeConfigs, including rollbacks and assignments
	// to nodes that join. Defaults to false.
	// +optional
	Frozen bool `json:"frozen,omitempty"`

	// frozenReason is why the rollout is frozen, for people. It has no effect if
	// frozen is false.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FrozenReason string `json:"frozenReason,omitempty"`

	// newNodes is the revision for nodes that join before the target revision has
	// succeeded. LastSucceeded is the newest revision that succeeded. Target is
	// the revision that is being rolled out. Defaults to LastSucceeded.
	// +optional
	// +kubebuilder:default=LastSucceeded
	NewNodes NewNodes `json:"newNodes,omitempty"`

	// strategy is the order and the pace of the rollout.
	// +optional
	// +kubebuilder:default={}
	Strategy RolloutStrategy `json:"strategy,omitempty"`

	// soakSeconds is how long a node must stay Ready, with ConfigOK True, after
	// its trial before it counts as updated. It must be less than
	// progressDeadlineSeconds. Defaults to 0. At most 604800.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	SoakSeconds int32 `json:"soakSeconds,omitempty"`

	// nodeTimeoutSeconds is how long a node may take from its assignment to the
	// end of its trial, in addition to the length of the trial. A node that takes
	// longer has failed. Defaults to 900. From 60 to 604800.
	// +optional
	// +kubebuilder:default=900
	// +kubebuilder:validation:XValidation:rule="self >= 60",message="must be at least 60: a node needs that long to try the configuration, restart its kubelet and renew its Lease, and to find the API server again after an outage"
	// +kubebuilder:validation:Maximum=604800
	NodeTimeoutSeconds int32 `json:"nodeTimeoutSeconds,omitempty"`

	// progressDeadlineSeconds is how long the rollout may make no progress before
	// it is reported as Stuck. Time that the rollout spends waiting for a person
	// or at a timed pause does not count. It must be more than soakSeconds.
	// Defaults to 3600. From 10 to 31536000.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:XValidation:rule="self >= 10",message="must be at least 10: no node is faster"
	// +kubebuilder:validation:Maximum=31536000
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`

	// failurePolicy decides when the rollout stops and what happens then.
	// +optional
	// +kubebuilder:default={}
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// rollback is the pace of a rollback.
	// +optional
	// +kubebuilder:default={}
	Rollback RollbackStrategy `json:"rollback,omitempty"`

	// revisionHistoryLimit is the number of revisions to keep that no node names,
	// and the number of outcomes to keep in status.history. Defaults to 10. From 0
	// to 50.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// approval lets a revision pass a step and every step before it.
	// +optional
	// +structType=atomic
	Approval *RolloutApproval `json:"approval,omitempty"`

	// abort stops a revision permanently.
	// +optional
	// +structType=atomic
	Abort *RolloutAbort `json:"abort,omitempty"`

	// retry makes nodes on which a revision failed try it again, and lifts the
	// stop of the revision.
	// +optional
	// +structType=atomic
	Retry *RolloutRetry `json:"retry,omitempty"`
}

// NewNodes is the revision that nodes receive when they join during a rollout.
// +kubebuilder:validation:Enum=LastSucceeded;Target
type NewNodes string

const (
	// NewNodesLastSucceeded is the newest revision that succeeded. If no revision has succeeded, nodes that join wait for
	// their turn like all others.
	NewNodesLastSucceeded NewNodes = "LastSucceeded"
	// NewNodesTarget is the revision that is being rolled out.
	NewNodesTarget NewNodes = "Target"
)

// RolloutPin makes an earlier revision the target in place of the template.
type RolloutPin struct {
	// sha256 is the digest of the payload of the revision that becomes the target.
	// It has 64 lower-case hexadecimal digits, as in status.history.
	// +required
	SHA256 Digest `json:"sha256"`

	// instead is the digest of the payload of the template that the revision
	// replaces. The pin has no effect while the template has another payload.
	// +required
	Instead Digest `json:"instead"`
}

// RolloutTemplate is a configuration. Exactly one of its fields must be set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.kubelet) ? 1 : 0) + (has(self.kubeletDropIn) ? 1 : 0) + (has(self.configMapRef) ? 1 : 0) == 1",messageExpression="'template must have exactly one of kubelet, kubeletDropIn and configMapRef, but ' + (has(self.kubelet) || has(self.kubeletDropIn) || has(self.configMapRef) ? 'has more: remove all but one' : 'has none')"
type RolloutTemplate struct {
	// kubelet is a complete KubeletConfiguration, with the apiVersion
	// kubelet.config.k8s.io/v1beta1 (upstream) or evenkeel.dev/v1alpha1 (grouped).
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == 'KubeletConfiguration'",message="kind must be KubeletConfiguration"
	// +kubebuilder:validation:XValidation:rule="!has(self.apiVersion) || self.apiVersion == 'kubelet.config.k8s.io/v1beta1' || self.apiVersion == 'evenkeel.dev/v1alpha1'",message="apiVersion must be kubelet.config.k8s.io/v1beta1 (upstream), or evenkeel.dev/v1alpha1 (grouped)"
	Kubelet *runtime.RawExtension `json:"kubelet,omitempty"`

	// kubeletDropIn is a partial KubeletConfiguration. The kubelet
	// merges it into each node's local configuration.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == 'KubeletConfiguration'",message="kind must be KubeletConfiguration"
	// +kubebuilder:validation:XValidation:rule="!has(self.apiVersion) || self.apiVersion == 'kubelet.config.k8s.io/v1beta1' || self.apiVersion == 'evenkeel.dev/v1alpha1'",message="apiVersion must be kubelet.config.k8s.io/v1beta1 (upstream), or evenkeel.dev/v1alpha1 (grouped)"
	KubeletDropIn *runtime.RawExtension `json:"kubeletDropIn,omitempty"`

	// configMapRef names a ConfigMap with one of the keys kubelet and
	// kubelet-dropin. People may edit this ConfigMap; each of its contents becomes
	// a revision.
	// +optional
	ConfigMapRef *TemplateConfigMap `json:"configMapRef,omitempty"`
}

// TemplateConfigMap names the ConfigMap of a template.
type TemplateConfigMap struct {
	// namespace is the namespace of the ConfigMap. It must be evenkeel-system,
	// unless the controller has the right to read ConfigMaps in another namespace.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",messageExpression="self == '' ? 'namespace must be non-empty' : 'namespace must be a DNS label: lower-case letters, digits and dashes'"
	Namespace string `json:"namespace"`

	// name is the name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="self == '' ? 'name must be non-empty' : 'name must be a DNS name: lower-case letters, digits, dashes and dots'"
	Name string `json:"name"`
}

// ParallelControlPlanes is why control planes need not wait for each other.
type ParallelControlPlanes struct {
	// reason is why a second control plane that is away does no harm. The status
	// and Events show it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",message="must say why"
	Reason string `json:"reason"`
}

// RolloutStrategy is the order and the pace of a rollout.
//
// +kubebuilder:validation:XValidation:rule="(has(self.topologyKey) && size(self.topologyKey) > 0) || (!has(self.maxUnavailablePerDomain) && !has(self.maxDomainsInFlight))",message="maxUnavailablePerDomain and maxDomainsInFlight need a topologyKey, such as topology.kubernetes.io/zone"
type RolloutStrategy struct {
	// maxUnavailable is the maximum number of nodes that may be unavailable at the
	// same time: in flight, soaking, failed, or no longer Ready. It is a number,
	// or a percentage of the rollout's nodes, rounded down and at least 1. 0 stops
	// the rollout. Defaults to 10%.
	// +optional
	// +kubebuilder:default="10%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000000 : self.matches('^(0|[1-9][0-9]?|100)%$')",message="must be a number from 0 to 1000000, without quotes, or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// maxJoining is the maximum number of newly joined nodes that may be in flight
	// at the same time. It is a number, or a percentage of the rollout's nodes,
	// rounded down and at least 1. During the first ten minutes after its Node was
	// created, a node without workload pods is not subject to this limit, unless
	// the revision has failed on a node that joined. 0 admits only such nodes.
	// Defaults to the value of maxUnavailable.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000000 : self.matches('^(0|[1-9][0-9]?|100)%$')",message="must be a number from 0 to 1000000, without quotes, or a percentage from 0% to 100%"
	MaxJoining *intstr.IntOrString `json:"maxJoining,omitempty"`

	// topologyKey is the key of the node label whose value is the node's domain,
	// such as topology.kubernetes.io/zone.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="topologyKey must be the key of a node label, such as topology.kubernetes.io/zone"
	TopologyKey string `json:"topologyKey,omitempty"`

	// maxUnavailablePerDomain is maxUnavailable for the nodes of each domain. It
	// requires topologyKey. Absent means no limit.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000000 : self.matches('^(0|[1-9][0-9]?|100)%$')",message="must be a number from 0 to 1000000, without quotes, or a percentage from 0% to 100%"
	MaxUnavailablePerDomain *intstr.IntOrString `json:"maxUnavailablePerDomain,omitempty"`

	// maxDomainsInFlight is the maximum number of domains that may have nodes in
	// flight or soaking at the same time. It requires topologyKey. Absent means no
	// limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxDomainsInFlight *int32 `json:"maxDomainsInFlight,omitempty"`

	// parallelControlPlanes lets several control planes be in flight at the same
	// time, within the other limits. Absent means one in the whole cluster: no
	// node with the label node-role.kubernetes.io/control-plane begins while
	// another one is in flight for any reason, is not Ready, or has static pods
	// that are not Ready again.
	// +optional
	// +structType=atomic
	ParallelControlPlanes *ParallelControlPlanes `json:"parallelControlPlanes,omitempty"`

	// steps are the steps of the rollout, in order. Each has exactly one of nodes
	// and pause. After the last step, all remaining nodes are updated. Defaults to
	// three steps: 1 node, 10%, 100%.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	Steps []RolloutStep `json:"steps,omitempty"`

	// canarySelector selects the nodes of the rollout that are updated first, by
	// labels that they must have.
	// +optional
	// +kubebuilder:validation:MaxProperties=10
	// +mapType=atomic
	CanarySelector map[string]string `json:"canarySelector,omitempty"`

	// drain decides whether nodes are drained before they are updated. Never
	// drains no node. WhenBlocked drains a node whose agent refuses the revision
	// because of the node's pods. Always drains each node before it is assigned
	// the revision. WhenBlocked and Always require that the controller may evict
	// pods and patch Nodes (config/drain). Defaults to Never.
	// +optional
	Drain DrainMode `json:"drain,omitempty"`

	// drainOptions holds the settings for draining. It has no effect if drain is
	// Never.
	// +optional
	DrainOptions *DrainOptions `json:"drainOptions,omitempty"`

	// respectDisruptionBudgets treats a restart of the kubelet as a disruption of
	// each pod that the restart makes unready: a node whose pods'
	// PodDisruptionBudgets allow no such disruption waits. Kubelets up to 1.34, and
	// later ones with the feature gate ChangeContainerStatusOnKubeletRestart, make
	// probed pods unready. Requires that the controller may list pods and
	// PodDisruptionBudgets (config/drain). Defaults to true for such kubelets if
	// the controller may, and to false otherwise.
	// +optional
	RespectDisruptionBudgets *bool `json:"respectDisruptionBudgets,omitempty"`

	// windows are the times at which nodes may be assigned the revision. Nodes in
	// flight continue, and rollbacks and nodes that join are not restricted. Absent
	// means at any time.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Windows []MaintenanceWindow `json:"windows,omitempty"`

	// preflight decides whether every node's agent judges the revision before any
	// node is assigned it. Report asks all nodes and reports their answers in
	// status.preflight. Require also stops the revision if maxFailures nodes or
	// more refuse it for another reason than their pods. Defaults to Off.
	// +optional
	Preflight PreflightMode `json:"preflight,omitempty"`

	// startProbe decides on which nodes the controller starts and stops one small
	// pod under the revision before they count as updated. FirstStep means the
	// nodes that are assigned the revision before the first step is done. All means
	// all nodes until the rollout is complete. A node whose pod the kubelet cannot
	// start has failed with PodsCannotStart. Requires the rights of
	// config/controller, and an image. Defaults to FirstStep.
	// +optional
	StartProbe StartProbeMode `json:"startProbe,omitempty"`

	// startProbeImage is the image of the pod of a start probe, such as
	// registry.k8s.io/pause:3.10. The nodes must have the image already, because it
	// is never pulled. Its program must run until it receives SIGTERM, as a user
	// other than root. Defaults to the image of the node's evenkeel-agent pod.
	// Without such a pod, the start probe of the node has no result.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	StartProbeImage string `json:"startProbeImage,omitempty"`

	// gates are metrics that must pass for the rollout to continue.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Gates []RolloutGate `json:"gates,omitempty"`
}

// DrainMode decides whether nodes are drained before they are updated.
// +kubebuilder:validation:Enum=Never;WhenBlocked;Always
type DrainMode string

const (
	// DrainNever drains no node.
	DrainNever DrainMode = "Never"
	// DrainWhenBlocked drains nodes whose agents refuse the revision because of the nodes' pods.
	DrainWhenBlocked DrainMode = "WhenBlocked"
	// DrainAlways drains each node before it is assigned the revision.
	DrainAlways DrainMode = "Always"
)

// DrainOptions holds the settings for draining nodes.
type DrainOptions struct {
	// timeoutSeconds is how long the drain of a node may take. Then it is given
	// up, and the node is Blocked. Defaults to 900. From 10 to 86400.
	// +optional
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// ignoredPods are labels of pods that are not evicted and not waited for: a
	// pod is left alone if it has all of them. If the revision needs an empty
	// node, such a pod makes the node Blocked. Pods of DaemonSets and static pods
	// are never evicted.
	// +optional
	// +kubebuilder:validation:MaxProperties=10
	// +mapType=atomic
	IgnoredPods map[string]string `json:"ignoredPods,omitempty"`

	// unmanagedPods decides about pods without a controller, which nothing
	// creates again. Refuse does not drain a node with such a pod. Evict evicts
	// them. Defaults to Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	UnmanagedPods DrainPolicy `json:"unmanagedPods,omitempty"`

	// localData decides about pods with an emptyDir volume, whose content is lost.
	// Refuse does not drain a node with such a pod. Evict evicts them. Defaults to
	// Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	LocalData DrainPolicy `json:"localData,omitempty"`
}

// DrainPolicy decides about pods that a drain would not evict without being told to.
// +kubebuilder:validation:Enum=Refuse;Evict
type DrainPolicy string

const (
	// DrainRefuse does not drain a node with such a pod.
	DrainRefuse DrainPolicy = "Refuse"
	// DrainEvict evicts such pods.
	DrainEvict DrainPolicy = "Evict"
)

// MaintenanceWindow is a time that repeats, at which nodes may be assigned a revision.
type MaintenanceWindow struct {
	// schedule is when the window opens, in the cron format: minute, hour, day of
	// the month, month and day of the week, such as "0 22 * * 1-5".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule"`

	// duration is how long the window stays open, such as 6h. From 1m to 168h.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be a duration from 1m to 168h in h, m and s, such as 6h or 1h30m"
	Duration metav1.Duration `json:"duration"`

	// timeZone is the time zone of the schedule, from the IANA database, such as
	// Europe/Berlin. Defaults to UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// finish decides about the end of the window. Anytime allows an assignment as
	// long as the window is open. Within allows an assignment only if the trial can
	// end before the window closes. Defaults to Anytime.
	// +optional
	// +kubebuilder:default=Anytime
	Finish WindowFinish `json:"finish,omitempty"`
}

// WindowFinish decides about assignments near the end of a window.
// +kubebuilder:validation:Enum=Anytime;Within
type WindowFinish string

const (
	// FinishAnytime allows assignments as long as the window is open.
	FinishAnytime WindowFinish = "Anytime"
	// FinishWithin allows assignments only if the trial can end before the window closes.
	FinishWithin WindowFinish = "Within"
)

// PreflightMode decides whether agents judge a revision before any node is assigned it.
// +kubebuilder:validation:Enum=Off;Report;Require
type PreflightMode string

const (
	// PreflightOff asks no node.
	PreflightOff PreflightMode = "Off"
	// PreflightReport asks all nodes, and continues whatever they answer.
	PreflightReport PreflightMode = "Report"
	// PreflightRequire stops the revision if too many nodes refuse it.
	PreflightRequire PreflightMode = "Require"
)

// StartProbeMode decides on which nodes a pod is started before they count as updated.
// +kubebuilder:validation:Enum=FirstStep;All;Never
type StartProbeMode string

const (
	// StartProbeFirstStep starts a pod on the nodes that are assigned the revision before the first step is done.
	StartProbeFirstStep StartProbeMode = "FirstStep"
	// StartProbeAll starts a pod on each node.
	StartProbeAll StartProbeMode = "All"
	// StartProbeNever starts no pod.
	StartProbeNever StartProbeMode = "Never"
)

// RolloutGate is a metric that must pass for a rollout to continue.
type RolloutGate struct {
	// name is the name of the gate in this rollout.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be a DNS label: lower-case letters, digits and dashes"
	Name string `json:"name"`

	// prometheus is the query and its condition.
	// +required
	// +structType=atomic
	Prometheus PrometheusGate `json:"prometheus"`

	// interval is the time between two evaluations, such as 1m. From 10s to 24h.
	// Defaults to 1m.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s))+$') && duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="must be a duration from 10s to 24h in h, m and s, such as 1m"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// every decides when the gate is evaluated. Step means after each step, before
	// the next one begins. Always means also while nodes are being updated.
	// Defaults to Step.
	// +optional
	// +kubebuilder:default=Step
	Every GateEvery `json:"every,omitempty"`

	// failures is the number of failed evaluations in a row that stops the
	// revision. Defaults to 1. From 1 to 100.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Failures int32 `json:"failures,omitempty"`
}

// PrometheusGate is a query to a Prometheus server, and a condition for its value.
type PrometheusGate struct {
	// server is the name of the Prometheus server, as the controller's flag
	// --prometheus-server defines it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Server string `json:"server"`

	// query is an instant query in PromQL whose result is a scalar, or a vector
	// with at most one element.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`

	// passes is the condition that the value must meet: <, <=, >, >=, == or !=, and
	// a number, such as "< 0.01".
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(<|<=|>|>=|==|!=) ?-?[0-9]+([.][0-9]+)?(e[-+]?[0-9]{1,3})?$')",message="must be one of <, <=, >, >=, == and !=, and a number, such as \"< 0.01\""
	Passes string `json:"passes"`
}

// GateEvery decides when a gate is evaluated.
// +kubebuilder:validation:Enum=Step;Always
type GateEvery string

const (
	// GateEveryStep is after each step, before the next one begins.
	GateEveryStep GateEvery = "Step"
	// GateAlways is at any time while the revision is rolled out.
	GateAlways GateEvery = "Always"
)

// RolloutStep is one step of a rollout: a number of nodes, or a pause.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodes) != has(self.pause)",messageExpression="'a step must have exactly one of nodes and pause, but has ' + (has(self.nodes) ? 'both: split it into two steps' : 'neither')"
type RolloutStep struct {
	// nodes is the total number of nodes that are updated when this step is done:
	// a number, or a percentage of the rollout's nodes, rounded up. From one step
	// to the next, neither numbers nor percentages may decrease.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000000 : self == '100%' || (self.endsWith('%') && (size(self) == 2 ? '1%' <= self && self <= '9%' : size(self) == 3 && '10%' <= self && self <= '99%' && self.charAt(1) in ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']))",message="must be a number from 1 to 1000000, without quotes, or a percentage from 1% to 100%"
	Nodes *intstr.IntOrString `json:"nodes,omitempty"`

	// pause makes the rollout wait, for a duration or until somebody approves.
	// +optional
	Pause *RolloutPause `json:"pause,omitempty"`
}

// RolloutPause makes a rollout wait.
type RolloutPause struct {
	// duration is the length of the pause, such as 10m or 1h30m. If it is absent,
	// the rollout waits for an approval.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) > duration('0s')",message="must be a duration greater than 0 in h, m and s, such as 10m or 1h30m; omit it to wait for an approval"
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// FailureAction is what a rollout does when it stops.
// +kubebuilder:validation:Enum=Pause;Rollback
type FailureAction string

const (
	// FailureActionPause stops new assignments. Nodes that run the revision keep it.
	FailureActionPause FailureAction = "Pause"
	// FailureActionRollback returns the nodes that run the revision to the newest revision that succeeded.
	FailureActionRollback FailureAction = "Rollback"
)

// FailurePolicy decides when a rollout stops and what happens then.
type FailurePolicy struct {
	// maxFailures is the number of failed nodes that stops the rollout: a number,
	// or a percentage of the rollout's nodes, rounded up. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000000 : self.matches('^([1-9][0-9]?|100)%$')",message="must be a number from 1 to 1000000, without quotes, or a percentage from 1% to 100%"
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`

	// action is what the rollout does when it stops. Pause leaves the revision on
	// the nodes that run it. Rollback returns nodes to the newest revision that
	// succeeded. Defaults to Pause.
	// +optional
	// +kubebuilder:default=Pause
	Action FailureAction `json:"action,omitempty"`
}

// RollbackStrategy is the pace of a rollback.
type RollbackStrategy struct {
	// maxUnavailable is the maximum number of healthy nodes that may roll back at
	// the same time. It is a number, or a percentage of the rollout's nodes,
	// rounded down and at least 1. Broken nodes do not count. Defaults to 25%.
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000000 : self.matches('^([1-9][0-9]?|100)%$')",message="must be a number from 1 to 1000000, without quotes, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// RolloutApproval lets a revision pass a step.
type RolloutApproval struct {
	// revision is the number of the approved revision. The approval has no effect
	// on other revisions.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	Revision int64 `json:"revision"`

	// step is the approved step, counted from 0. All steps before it are approved
	// too.
	// +required
	// +kubebuilder:validation:Minimum=0
	Step int32 `json:"step"`

	// reason is why the step is approved, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// RolloutAbort stops a revision permanently.
type RolloutAbort struct {
	// revision is the number of the revision to stop. The abort has no effect on
	// other revisions.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	Revision int64 `json:"revision"`

	// rollback returns the nodes that run this revision to the newest revision
	// that succeeded. Defaults to false.
	// +optional
	Rollback bool `json:"rollback,omitempty"`

	// reason is why the revision is stopped, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// RolloutRetry makes nodes try a revision again.
type RolloutRetry struct {
	// revision is the number of the revision to try again. The retry has no effect
	// on other revisions.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	Revision int64 `json:"revision"`

	// attempt is the number of the new attempt. The first attempt is 1. A number
	// higher than status.attempt starts a new attempt.
	// +required
	// +kubebuilder:validation:XValidation:rule="self >= 2",message="must be at least 2, because the first attempt is 1: set it to status.attempt + 1"
	// +kubebuilder:validation:Maximum=1000000000
	Attempt int64 `json:"attempt"`

	// nodes are the names of the nodes that try again. Absent means all nodes on
	// which the revision failed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Nodes []string `json:"nodes,omitempty"`
}
