// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"errors"
	"testing"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		args []string
		err  error
		code int
	}{
		{nil, nil, 0},
		{nil, errors.New("it does not work"), ExitError},
		{nil, errors.Join(errors.New("so it ends"), WithExitCode(7, errors.New("no lock"))), 7},
		{nil, Usage("%d is too many", 7), ExitUsage},
		{[]string{"--nothing"}, nil, ExitUsage},
		{[]string{"more"}, nil, ExitUsage},
	} {
		cmd := Root(&cobra.Command{Use: "program", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return tt.err }})
		cmd.SetArgs(append([]string{}, tt.args...))
		assert.Equal(t, Run(cmd), tt.code, "with", tt.args, "and the error", tt.err, "it exits with")
	}
}
