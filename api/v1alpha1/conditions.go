package v1alpha1

// ConditionConfigOK is the type of the condition, in NodeConfig.status and on the Node alike, that says whether the
// assigned configuration is in use and fine.
const ConditionConfigOK = "ConfigOK"

// ConditionKubeletLimited is the type of a condition in NodeConfig.status that is True where the agent can do less with
// the node's kubelet than with others, and absent elsewhere. Its reason is the first limit, such as ComparedByText, and its
// message has them all.
const ConditionKubeletLimited = "KubeletLimited"

// Reasons of ConfigOK in NodeConfig.status. The Node's condition carries the sentence instead. The status that goes
// with each stands at the end of its comment.

// What is assigned is what runs.
const (
	// ReasonAllChecksPassed: the assigned configuration runs, in its trial or past it. True.
	ReasonAllChecksPassed = "AllChecksPassed"
	// ReasonLocalInit: local is assigned, or nothing ever was, and the node has a file of its own. True.
	ReasonLocalInit = "LocalInit"
	// ReasonLocalDefault: local is assigned, or nothing ever was, and the node has no file of its own. True.
	ReasonLocalDefault = "LocalDefault"
)

// The agent cannot tell what is assigned, or whether it is valid. What runs goes on; nothing enters badConfigs.
const (
	// ReasonSyncFailed: the desired configuration is unclear. The source is invalid, its object is not found, forbidden
	// or not the one named, its payload is not the one named or none at all, the API does not answer, the NodeConfig
	// is gone, or the node's disk does not take the checkpoint. Unknown.
	ReasonSyncFailed = "SyncFailed"
	// ReasonObjectChanged: the object has the revision on record but not its payload; it was refused. Unknown.
	ReasonObjectChanged = "ObjectChanged"
	// ReasonStaleAssignment: a controller that does not lead any more assigned it, or its revision was stopped
	// meanwhile. The controller that leads assigns it anew if it is still wanted. Unknown.
	ReasonStaleAssignment = "StaleAssignment"
	// ReasonCouldNotValidate: the dry run of the kubelet gave no verdict: it hung, it could not be run, or the local
	// configuration fails in the same way; or it rejects at a start what has passed its trial with this kubelet. Decided
	// again when something changes, and now and then. Unknown.
	ReasonCouldNotValidate = "CouldNotValidate"
	// ReasonInconclusive: a trial failed, but last-known-good failed too before it was steadily healthy, so that the
	// verdict was taken back; the trial resumes once last-known-good is healthy. Unknown.
	ReasonInconclusive = "Inconclusive"
	// ReasonWaitingForLock: the kubelet was started with what is assigned, but has waited for its --lock-file for longer
	// than the health timeout: another process holds it. Unknown.
	ReasonWaitingForLock = "WaitingForLock"
)

// The node's own kubelet rejects the assigned configuration.
const (
	// ReasonValidationFailed: the dry run of the kubelet rejected it; status.error has the kubelet's words. False.
	ReasonValidationFailed = "ValidationFailed"
)

// A guard refuses the assigned configuration. That is no verdict: nothing enters badConfigs, and it is decided again
// when the node's pods, cordon or local configuration change.
const (
	// ReasonWouldEvictPods: more pods run than the new maxPods allows, and the payload does not allow pod loss. False.
	ReasonWouldEvictPods = "WouldEvictPods"
	// ReasonNeedsDrain: it contradicts a state file of the CPU or memory manager, and the node is not cordoned and
	// drained. False.
	ReasonNeedsDrain = "NeedsDrain"
	// ReasonProtectedFields: it would make a field that this node protects different from what it is locally. False.
	ReasonProtectedFields = "ProtectedFields"
)

// The trial of the assigned configuration failed. It is among the badConfigs; last-known-good runs.
const (
	// ReasonCrashLooped: the kubelet exited unexpectedly after crashLoopThreshold + 1 starts. False.
	ReasonCrashLooped = "CrashLooped"
	// ReasonNotHealthy: the kubelet was alive but not healthy for longer than the health timeout. False.
	ReasonNotHealthy = "NotHealthy"
	// ReasonNotReady: the kubelet was healthy, but the node, Ready before, was not Ready for the ready timeout. False.
	ReasonNotReady = "NotReady"
	// ReasonWorkloadHarmed: the node came under memory, disk or PID pressure after adoption, or the kubelet evicted
	// or rejected pods that ran before. False.
	ReasonWorkloadHarmed = "WorkloadHarmed"
	// ReasonLostAPI: the node lost the API soon after adoption, and had it back soon after it went back to
	// last-known-good. False; Unknown while the node has gone back and there is no verdict yet.
	ReasonLostAPI = "LostAPI"
)

// The assigned configuration is ruled out beforehand; last-known-good runs.
const (
	// ReasonRevoked: spec.revoked lists it. False.
	ReasonRevoked = "Revoked"
)

// There is nothing good to go back to.
const (
	// ReasonDeadEnd: last-known-good itself keeps crashing, or is revoked or lost with nothing else allowed to run; the
	// agent keeps trying, a person must look. False.
	ReasonDeadEnd = "DeadEnd"
	// ReasonLocalInvalid: the kubelet rejects the node's local configuration, and the agent was told to run a proven
	// one all the same instead of stopping. False.
	ReasonLocalInvalid = "LocalInvalid"
)

// ConfigOKReasons are all reasons of ConfigOK in NodeConfig.status.
var ConfigOKReasons = []string{
	ReasonAllChecksPassed, ReasonLocalInit, ReasonLocalDefault,
	ReasonSyncFailed, ReasonObjectChanged, ReasonStaleAssignment, ReasonCouldNotValidate, ReasonInconclusive, ReasonWaitingForLock,
	ReasonValidationFailed, ReasonWouldEvictPods, ReasonNeedsDrain, ReasonProtectedFields,
	ReasonCrashLooped, ReasonNotHealthy, ReasonNotReady, ReasonWorkloadHarmed, ReasonLostAPI,
	ReasonRevoked, ReasonDeadEnd, ReasonLocalInvalid,
}
