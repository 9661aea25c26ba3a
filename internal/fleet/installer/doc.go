// Package installer brings evenkeel's agent to many nodes, or takes it away, a few nodes at a time.
package installer
