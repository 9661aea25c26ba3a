// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install writes the systemd drop-in that makes the unit of a node's
// kubelet run evenkeel-agent, checks that the kubelet and its node become
// healthy, and removes the drop-in again.
//
// It changes one drop-in file of the unit. A change is recorded on disk before
// it begins. A new drop-in is tried first in /run, which a reboot clears and a
// guard unit cleans up if the installer is killed. A node that does not become
// healthy gets its previous state back, so the drop-in is either present and
// good, or absent.
//
// It must not know the agent's flags, or what the agent does with a kubelet:
// package install asks the Host.
package install
