// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

const (
	checkpointsDir = "checkpoints"
	renderedDir    = "rendered"
	requestsDir    = "forget-requests"

	corruptSuffix = ".corrupt"
	editedSuffix  = ".edited" // a copy of a record that a person changed while the agent ran
)

// AgentLock is the lock file that the agent of a directory holds while it runs.
func AgentLock(dir string) string { return filepath.Join(dir, "agent.lock") }

// ErrName is the error for a revision or version that is not safe as a part of a path.
var ErrName = errors.New("not a safe name")

var safeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// checkName accepts one path element that does not look like an internal file name.
func checkName(what, name string) error {
	if !safeName.MatchString(name) || strings.HasSuffix(name, corruptSuffix) || strings.HasSuffix(name, atomicfile.TempSuffix) {
		return fmt.Errorf("%s %q: %w", what, name, ErrName)
	}
	return nil
}

func checkRevision(revision string) error { return checkName("revision", revision) }

func checkVersion(version string) error {
	reserved := slices.Contains([]string{checkpointsDir, renderedDir, requestsDir, runningFile, givenUpFile, versionRecord.name}, version) ||
		strings.HasSuffix(version, ".lock") ||
		slices.ContainsFunc(records, func(r record) bool { return r.name == version })
	if reserved {
		return fmt.Errorf("component version %q: %w: it is taken", version, ErrName)
	}
	return checkName("component version", version)
}
