// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
	"github.com/evenkeel/evenkeel/internal/operator/survey"
	"github.com/evenkeel/evenkeel/internal/program"
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

func TestBinaryKeysAreAddedRemovedOrChanged(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	a := &app{command.NewEnv(program.Info{}, streams)}
	of := func(binary map[string][]byte) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}, BinaryData: binary}
	}
	a.showWrite(kubeadm.Write{
		Old: of(map[string][]byte{"changed": {1}, "empty-before": {}, "removed": {1}, "same": {1}}),
		New: of(map[string][]byte{"added": {1}, "changed": {2}, "empty": {}, "same": {1}}),
	})
	want := "\nConfigMap kube-system/kube-proxy:\n  added, binary, is added\n  changed, binary, is changed\n  empty, binary, is added\n" +
		"  empty-before, binary, is removed\n  removed, binary, is removed\n"
	assert.That(t, strings.HasPrefix(out.String(), want), "printed %s", out)
}
