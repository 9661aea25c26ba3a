// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"evenkeel-controller": main})
}

func TestTheCommandLine(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", Cmds: map[string]func(*testscript.TestScript, bool, []string){"fails": fails}})
}

// fails runs the controller and wants it to end with an exit code: fails CODE
// [FLAG...].
func fails(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec("evenkeel-controller", args[1:]...)
	ended := (*exec.ExitError)(nil)
	if !errors.As(err, &ended) || ended.ExitCode() != want {
		ts.Fatalf("evenkeel-controller %q: got %v, want exit code %d", args[1:], err, want)
	}
}

func TestTheFlagsInTheChartsExamplesExist(t *testing.T) {
	values := assert.Value(os.ReadFile("../../charts/evenkeel/values.yaml"))(t)
	found := regexp.MustCompile(`(?s)\ncontroller:.*?Additional flags, such as \["([^"]*)"\]`).FindSubmatch(values)
	assert.Must(t, found != nil, "values.yaml has no example of controller.args")
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o := &options{}
	o.bind(f)
	assert.NoError(t, f.Parse([]string{string(found[1])}))
	assert.NoError(t, o.check())
}
