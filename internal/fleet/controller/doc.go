// Package controller is the shell around rollout.Plan: it keeps what is observed of rollouts, nodes and NodeConfigs, lets
// Plan decide, records, writes NodeConfig specs and reports, and does nothing else.
//
// It must not decide which node moves, and it must not know how an agent works: NodeConfig is all that the two share.
package controller
