package trial

// Reasons of ConfigOK, as in the API. The other reasons are those of a Failure, of a guard, and Inconclusive.
const (
	reasonAllChecksPassed  = "AllChecksPassed"
	reasonLocalInit        = "LocalInit"
	reasonLocalDefault     = "LocalDefault"
	reasonSyncFailed       = "SyncFailed"
	reasonStaleAssignment  = "StaleAssignment" // the assignment is outdated: the adopted configuration stays
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
