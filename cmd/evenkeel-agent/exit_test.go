// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/handover"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestEachFailureToRunTheNodeHasAnExitCode(t *testing.T) {
	cause := errors.New("the cause")
	for failure, want := range map[handover.Failure]int{handover.DirectoryHeld: 5, handover.Unusable: 7, handover.Lost: 8, handover.GaveUp: 9} {
		err := exitCode(fmt.Errorf("it ends: %w", &handover.Error{Failure: failure, Err: cause}))
		var coded *program.Exit
		assert.That(t, errors.As(err, &coded) && coded.Code == want && err.Error() == "it ends: the cause",
			"failure %d: %v, want exit code %d", failure, err, want)
	}

	for _, err := range []error{nil, cause} {
		assert.Equal(t, exitCode(err), err)
	}
}

// The installer of nodes reads the exit codes from pods.
func TestAUsageErrorEndsWithTheExitCodeThatTheInstallerKnows(t *testing.T) {
	assert.Equal(t, program.ExitUsage, v1alpha1.InstallExitUsage, "a usage error ends with")
}
