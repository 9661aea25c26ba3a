// Package source is all of the agent's traffic with the API server: where the intended configuration comes from, how
// the node is seen there while a trial runs, and what is reported.
//
// It must not know what a configuration does, whether it is any good, or what the node runs: it answers what is
// intended, and why that cannot be told when it cannot. It never decides. Nothing in it blocks its caller: whoever
// asks gets what is known now and a signal when that changes.
//
// The agent has to stay small, so that there is no typed clientset and no informer: a REST client with a scheme of its
// own, objects with the few fields that are looked at, and watches that hand what they see to whoever asked for it.
package source
