// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ConditionConfigOK is the type of the condition that reports whether the assigned configuration is in use and works. It is
// in NodeConfig.status and on the Node.
const ConditionConfigOK = "ConfigOK"

// ConditionNodeConfigured is the type of a condition of the Node, for other tools. It is True only if a rollout or a person
// assigned a configuration and the node runs it, and Unknown if none is assigned; ConfigOK is also True for the local
// configuration. Its message ends with the generation of the NodeConfig that it is about.
const ConditionNodeConfigured = "evenkeel.dev/Configured"

// ConditionKubeletLimited is the type of a condition in NodeConfig.status. It is True if the agent supports the node's
// kubelet only in part, and absent otherwise. Its reason is the first limit, such as NotComparable, and its message lists
// all limits.
const ConditionKubeletLimited = "KubeletLimited"

// ConditionDrifted is the type of a condition in NodeConfig.status. It is True if the running kubelet or its local files differ
// from what the agent started, and absent until the first comparison. It never affects ConfigOK, trials or rollouts.
const ConditionDrifted = "Drifted"

// Reasons of Drifted.
const (
	// DriftConfigzDiffers means that the running kubelet has other values than the configuration that was started. True.
	DriftConfigzDiffers = "ConfigzDiffers"
	// DriftFilesEdited means that files of the local configuration were edited, added or removed since the kubelet was
	// started. True.
	DriftFilesEdited = "FilesEdited"
	// DriftNone means that files and /configz are as they were started. False.
	DriftNone = "NoDrift"
	// DriftFilesUnchanged means that the files are as they were at the start, and that /configz could not be compared. False.
	DriftFilesUnchanged = "FilesUnchanged"
)

// ConditionPodsStarted is the type of a condition in NodeConfig.status. It says whether the node started pods with last-known-good in its
// trial and within an hour after it, and is absent without a last-known-good configuration. While a trial lasts, it is present only if the
// trial waits.
const ConditionPodsStarted = "PodsStarted"

// Reasons of PodsStarted.
const (
	// PodsStartObserved means that a pod was started in the trial. True.
	PodsStartObserved = "PodsStarted"
	// PodsStartUnknown means that no pod was started in the trial. Unknown.
	PodsStartUnknown = "NoPodStarted"
	// PodsStartRefused means that the kubelet or its runtime refused to start some pods in the trial, which waits or has waited for them.
	// False.
	PodsStartRefused = "PodsRefused"
	// PodsStartFailed means that after the trial pods were refused and none started. False.
	PodsStartFailed = ReasonPodsCannotStart
)

// Reasons of ConfigOK in NodeConfig.status. The Node's condition has a sentence as its reason instead. Each comment ends
// with the status that goes with the reason.

// The node runs what is assigned.
const (
	// ReasonAllChecksPassed means that the assigned configuration runs, in its trial or after it. True.
	ReasonAllChecksPassed = "AllChecksPassed"
	// ReasonLocalInit means that local is assigned, or nothing ever was, and the node has a file of its own. True.
	ReasonLocalInit = "LocalInit"
	// ReasonLocalDefault means that local is assigned, or nothing ever was, and the node has no file of its own. True.
	ReasonLocalDefault = "LocalDefault"
	// ReasonAssignmentEnded means that a temporary assignment has ended, and the node runs last-known-good. True; False if it cannot.
	ReasonAssignmentEnded = "AssignmentEnded"
)

// The agent cannot tell what is assigned, or whether it is valid. The node keeps its configuration; nothing enters
// badConfigs.
const (
	// ReasonSyncFailed means that the desired configuration is not known: the source is invalid; its object is not found,
	// is forbidden or has another UID; the object's payload is missing or is not the one named; the API does not answer;
	// the NodeConfig is gone; or the checkpoint cannot be written to the node's disk. Unknown.
	ReasonSyncFailed = "SyncFailed"
	// ReasonObjectChanged means that the object was refused because its payload differs from the one that the node recorded
	// under the same revision. Unknown.
	ReasonObjectChanged = "ObjectChanged"
	// ReasonStaleAssignment means that a former leader made the assignment, or that the revision was stopped in the
	// meantime. The leading controller makes the assignment again if it is still desired. Unknown.
	ReasonStaleAssignment = "StaleAssignment"
	// ReasonCouldNotValidate means that the kubelet's dry run gave no verdict: it hung, it could not be started, or the local
	// configuration fails in the same way. It also means that a dry run at a start rejected a configuration that had passed
	// its trial with this kubelet. Retried when something changes, and periodically. Unknown.
	ReasonCouldNotValidate = "CouldNotValidate"
	// ReasonInconclusive means that a trial failed, but last-known-good failed too before it was steadily healthy, so the
	// verdict was withdrawn. The trial resumes once last-known-good is healthy. Unknown.
	ReasonInconclusive = "Inconclusive"
	// ReasonWaitingForLock means that the kubelet was started with the assigned configuration, but has waited for its
	// --lock-file for longer than the health timeout because another process holds the lock. Unknown.
	ReasonWaitingForLock = "WaitingForLock"
)

// The node's own kubelet rejects the assigned configuration.
const (
	// ReasonValidationFailed means that the kubelet's dry run rejected the configuration. status.error has the kubelet's
	// words. False.
	ReasonValidationFailed = "ValidationFailed"
)

// A guard refuses the assigned configuration. A refusal is not a verdict: nothing enters badConfigs, and the agent decides
// again when the node, its pods or the local configuration change, and periodically.
const (
	// ReasonWouldEvictPods means that the kubelet would reject or end pods of the node with the configuration, and the trial
	// settings do not allow pod loss. False.
	ReasonWouldEvictPods = "WouldEvictPods"
	// ReasonRestartWouldEvictPods means that the kubelet would reject or end pods of the node after any restart, whatever the
	// configuration, and the trial settings do not allow pod loss. False.
	ReasonRestartWouldEvictPods = "RestartWouldEvictPods"
	// ReasonNeedsDrain means that the configuration contradicts a state file of the CPU or memory manager or changes the cgroups
	// of running pods, and the node is not cordoned and drained. False.
	ReasonNeedsDrain = "NeedsDrain"
	// ReasonProtectedFields means that the configuration would give a field that this node protects another value than the
	// local configuration has. False.
	ReasonProtectedFields = "ProtectedFields"
)

// The trial of the assigned configuration failed. The configuration is in badConfigs, and the node runs last-known-good.
const (
	// ReasonCrashLooped means that the kubelet exited unexpectedly after crashLoopThreshold + 1 starts. False.
	ReasonCrashLooped = "CrashLooped"
	// ReasonNotHealthy means that the kubelet ran but was not healthy for longer than the health timeout. False.
	ReasonNotHealthy = "NotHealthy"
	// ReasonNotReady means that the kubelet was healthy, but the node, which was Ready before, was not Ready for the ready
	// timeout. False.
	ReasonNotReady = "NotReady"
	// ReasonWorkloadHarmed means that after adoption the node came under memory, disk or PID pressure, or the kubelet
	// evicted or rejected pods that ran before, or pods ended for an unknown reason. False.
	ReasonWorkloadHarmed = "WorkloadHarmed"
	// ReasonPodsCannotStart means that after adoption the kubelet or its runtime refused to start pods, and none started. False.
	ReasonPodsCannotStart = "PodsCannotStart"
	// ReasonLostAPI means that the node lost its connection to the API soon after adoption, and regained it soon after it
	// returned to last-known-good. False; Unknown while the node has returned and there is no verdict yet.
	ReasonLostAPI = "LostAPI"
)

// The assigned configuration must not run; the node runs last-known-good.
const (
	// ReasonRevoked means that spec.revoked lists the configuration. False.
	ReasonRevoked = "Revoked"
)

// The node has no working configuration to fall back to.
const (
	// ReasonDeadEnd means that last-known-good keeps crashing, or is revoked or lost while nothing else is allowed to run.
	// The agent keeps trying; a person must look at the node. False.
	ReasonDeadEnd = "DeadEnd"
	// ReasonLocalInvalid means that the kubelet rejects the node's local configuration: no kubelet runs, or nothing new is adopted
	// while one runs. False.
	ReasonLocalInvalid = "LocalInvalid"
)

// ConfigOKReasons lists all reasons of ConfigOK in NodeConfig.status.
var ConfigOKReasons = []string{
	ReasonAllChecksPassed, ReasonLocalInit, ReasonLocalDefault, ReasonAssignmentEnded,
	ReasonSyncFailed, ReasonObjectChanged, ReasonStaleAssignment, ReasonCouldNotValidate, ReasonInconclusive, ReasonWaitingForLock,
	ReasonValidationFailed, ReasonWouldEvictPods, ReasonRestartWouldEvictPods, ReasonNeedsDrain, ReasonProtectedFields,
	ReasonCrashLooped, ReasonNotHealthy, ReasonNotReady, ReasonWorkloadHarmed, ReasonPodsCannotStart, ReasonLostAPI,
	ReasonRevoked, ReasonDeadEnd, ReasonLocalInvalid,
}
