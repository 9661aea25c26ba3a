// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/operator/survey"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestASurveyEscapesWhatNodesSay(t *testing.T) {
	const evil = "\x1b[2J\u202e"
	answers := []survey.Answer{
		{Node: survey.Node{Name: "a" + evil, Kubelet: "v1.37.2" + evil, Pool: evil}, Failed: survey.Finding{ID: "refused", Wrong: "it refused" + evil, Detail: evil}},
	}
	var out strings.Builder
	assert.NoError(t, printSurvey(&out, survey.NewReport(answers, time.Now()), true))
	assert.That(t, strings.Contains(out.String(), "it refused") && !strings.ContainsAny(out.String(), evil[:1]+"\u202e"), "it prints %q", out.String())
}
