package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/handover"
	"github.com/evenkeel/evenkeel/internal/program"
)

func TestEachFailureToRunTheNodeHasAnExitCode(t *testing.T) {
	cause := errors.New("the cause")
	for failure, want := range map[handover.Failure]int{handover.DirectoryHeld: 5, handover.Unusable: 7, handover.Lost: 8, handover.GaveUp: 9} {
		err := exitCode(fmt.Errorf("it ends: %w", &handover.Error{Failure: failure, Err: cause}))
		var coded *program.Exit
		if !errors.As(err, &coded) || coded.Code != want || err.Error() != "it ends: the cause" {
			t.Errorf("failure %d: %v, want exit code %d", failure, err, want)
		}
	}
	for _, err := range []error{nil, cause} {
		if got := exitCode(err); got != err {
			t.Errorf("%v becomes %v", err, got)
		}
	}
}

// The installer of nodes reads the exit codes from pods.
func TestAUsageErrorEndsWithTheExitCodeThatTheInstallerKnows(t *testing.T) {
	if program.ExitUsage != v1alpha1.InstallExitUsage {
		t.Errorf("a usage error ends with %d, the installer expects %d", program.ExitUsage, v1alpha1.InstallExitUsage)
	}
}
