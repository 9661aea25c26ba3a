// Package componentconfig manages the configurations of a cluster's components as kubeadm lays them out, in ConfigMaps of
// kube-system, the way of the proposal "kubeadm component config management": it tells generated configurations from what
// a user supplied by their signatures, generates them without defaults, has the target version's own binary judge what an
// upgrade would leave in place, and stores what is new so that the old can be restored.
//
// It must not know a component's fields beyond those that it generates: no defaults, no validation and no conversion of its
// own. What a configuration is worth, its component says (package component).
//
// The order of things is: Gather what the cluster has and ParseFile what the user gave, Decide what will be there, Judge
// that, show it, Store it.
package kubeadm
