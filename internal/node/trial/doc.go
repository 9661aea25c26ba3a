// Package trial is the core of evenkeel: it decides which configuration this
// node runs, and why.
//
// Decide is pure. It knows no clock, file, network or process: the agent
// gathers what can be observed, calls Decide, persists Next, carries out
// Action and reports Status. A crash anywhere is repaired by observing and
// deciding again. The rules are those of the proposal "Dynamic Kubelet
// Configuration" (2017), sections "Robust Kubelet behavior" and "Reporting
// Configuration Status", with the differences that docs/architecture.md names.
package trial
