// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/operator/survey"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestSurveyShowsWhatARealKubeletRuns(t *testing.T) {
	t.Parallel()
	n := newNode(t, "survey")
	n.Up()
	silent := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "surveyed-silent", Labels: map[string]string{"surveyed": ""}}}
	assert.Value(n.Kube.CoreV1().Nodes().Create(t.Context(), silent, metav1.CreateOptions{}))(t)
	surveyed := assert.Value(n.Kube.CoreV1().Nodes().Patch(t.Context(), n.Node.Name(), types.MergePatchType, []byte(`{"metadata": {"labels": {"surveyed": ""}}}`),
		metav1.PatchOptions{}))(t)
	want := assert.Value(n.KubeletConfigz(t.Context()))(t)

	var out bytes.Buffer
	code := assert.Value(n.Evenkeel(t.Context(), &out, "survey", "-l", "surveyed", "-o", "json", "--component-binary", "kubelet="+tool("kubelet")))(t)
	text := out.Bytes()[bytes.IndexByte(out.Bytes(), '{'):] // behind the progress
	var r survey.Report
	assert.NoError(t, json.Unmarshal(text, &r), out.String())
	assert.Must(t, code == 3 && r.Nodes == 2 && r.Read == 1 && len(r.Configurations) == 1 && len(r.Unread) == 1, "exit code %d: %s", code, &out)
	got := r.Configurations[0]
	delete(want, "apiVersion")
	delete(want, "kind")
	for name, value := range got.Fields {
		if value == survey.Own {
			want[name] = survey.Own
		}
	}

	assert.NoDiff(t, cmp.Diff(want, got.Fields), "survey does not show what /configz says")
	assert.Equal(t, got.Kubelets[surveyed.Status.NodeInfo.KubeletVersion], 1)
	assert.Equal(t, got.Verdict.Outcome, survey.WouldStart, got.Verdict.Message)
	assert.Equal(t, r.Unread[0].Names[0], silent.Name)
}
