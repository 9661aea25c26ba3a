// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/spf13/pflag"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

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
