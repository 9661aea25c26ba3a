// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAMissingKubeconfigIsExplainedAsInOtherCommands(t *testing.T) {
	connection := genericclioptions.NewConfigFlags(false)
	missing := filepath.Join(t.TempDir(), "missing")
	connection.KubeConfig = &missing
	a := &app{&command.Env{Connection: connection, IOStreams: genericiooptions.NewTestIOStreamsDiscard(), Terminal: io.Discard}}
	_, want := a.RESTConfig()
	err := a.run(t.Context(), "-")
	assert.That(t, err != nil && want != nil && err.Error() == want.Error() && strings.Contains(err.Error(), "correct --kubeconfig"),
		"the error is %v, want %v", err, want)
}
