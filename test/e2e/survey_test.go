// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/internal/operator/survey"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestSurveyShowsWhatARealKubeletRuns(t *testing.T) {
	t.Parallel()
	n := newNode(t, "survey")
	n.Up()
	silent := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "surveyed-silent", Labels: map[string]string{"surveyed": ""}}}
	assert.Value(n.Kube.CoreV1().Nodes().Create(t.Context(), silent, metav1.CreateOptions{}))(t)
	real := assert.Value(n.Kube.CoreV1().Nodes().Get(t.Context(), n.Node.Name(), getOptions))(t)
	real.Labels["surveyed"] = ""
	assert.Value(n.Kube.CoreV1().Nodes().Update(t.Context(), real, metav1.UpdateOptions{}))(t)
	want := assert.Value(n.KubeletConfigz(t.Context()))(t)

	var out bytes.Buffer
	code := assert.Value(n.Evenkeel(t.Context(), &out, "survey", "-l", "surveyed", "-o", "json", "--component-binary", "kubelet="+tool("kubelet")))(t)
	text := out.Bytes()[bytes.IndexByte(out.Bytes(), '{'):]
	var r survey.Report
	assert.NoError(t, json.Unmarshal(text, &r), out.String())
	assert.Must(t, code == 3 && r.Nodes == 2 && r.Read == 1 && len(r.Configurations) == 1 && len(r.Unread) == 1, "exit code %d: %s", code, &out)
	got := r.Configurations[0]
	delete(want, "apiVersion")
	delete(want, "kind")
	for name, value := range got.Fields {
		if value == survey.Own {
			t.Log("its own:", name)
			want[name] = survey.Own
		}
	}
	assert.NoDiff(t, cmp.Diff(want, got.Fields), "survey does not show what /configz says")
	assert.Equal(t, got.Kubelets[real.Status.NodeInfo.KubeletVersion], 1)
	assert.Equal(t, got.Verdict.Outcome, survey.WouldStart, got.Verdict.Message)
	assert.Equal(t, r.Unread[0].Names[0], silent.Name)
	if dir := os.Getenv("SURVEY_OUT"); dir != "" {
		for _, format := range []string{"", "wide", "html", "json"} {
			var out bytes.Buffer
			args := []string{"survey", "-l", "surveyed", "--component-binary", "kubelet=" + os.Getenv("SURVEY_KUBELET")}
			if format != "" {
				args = append(args, "-o", format)
			}
			_, _ = n.Evenkeel(t.Context(), &out, args...)
			_ = os.WriteFile(dir+"/out."+format, out.Bytes(), 0o600)
		}
	}
}
