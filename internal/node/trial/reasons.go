package trial

// Reasons of ConfigOK, as the API has them. The other reasons are those of a Failure, of a guard, and Inconclusive.
const (
	reasonAllChecksPassed  = "AllChecksPassed"
	reasonLocalInit        = "LocalInit"
	reasonLocalDefault     = "LocalDefault"
	reasonSyncFailed       = "SyncFailed"
	reasonStaleAssignment  = "StaleAssignment" // nobody stands by the assignment any more: what was taken up before stays
	reasonCouldNotValidate = "CouldNotValidate"
	reasonWaitingForLock   = "WaitingForLock"
	reasonRevoked          = "Revoked"
	reasonDeadEnd          = "DeadEnd"
	reasonLocalInvalid     = "LocalInvalid"
)

// Reasons of events. docs/operating.md lists them.
const (
	eventForgotten           = "Forgotten"
	eventConfigChanged       = "ConfigChanged"
	eventConfigRejected      = "ConfigRejected"
	eventConfigOnTrial       = "ConfigOnTrial"
	eventConfigRolledBack    = "ConfigRolledBack"
	eventConfigLastKnownGood = "ConfigLastKnownGood"
	eventInconclusive        = "Inconclusive"
	eventTrialResumed        = "TrialResumed"
	eventAPILost             = "APILost"
	eventDeadEnd             = "DeadEnd"
)
