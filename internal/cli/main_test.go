// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// Tests of a command are beside it, and those of the program with an API server
// are in cmd/kubectl-evenkeel. Here are tests of all commands together.

func newAPI(t *testing.T) *fakeapi.API {
	t.Helper()
	return fakeapi.New(t, rootCommand)
}

// evenkeelAs runs a command line with a kubeconfig.
func evenkeelAs(t *testing.T, kubeconfig string, args ...string) fakeapi.Result {
	t.Helper()
	var out, errOut bytes.Buffer
	streams := genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
	code := Run(t.Context(), program.NewInfo("kubectl-evenkeel", "v0.0.0-test", "0123abcd"), append(args, "--kubeconfig", kubeconfig), streams)

	return fakeapi.Result{Code: code, Out: out.String(), Err: errOut.String()}
}
