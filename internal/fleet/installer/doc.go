// Package installer brings evenkeel's agent to many nodes, or takes it away, a few nodes at a time: it labels a node, which
// brings a pod of the installer there, and waits until the node's kubelet and agent are back.
//
// Decide is pure: from what is known of the nodes it says which node is next, whether to wait, to stop, or to give a node
// its label back. Pacer reads the nodes and carries the decisions out. What a pod does on its node is not known here: that
// is internal/node/install. Whoever calls it asks for confirmation, and prints.
package installer
