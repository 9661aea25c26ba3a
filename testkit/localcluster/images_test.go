// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// build/image/pack makes the image of the controller for two architectures. What
// the other one runs is not for this machine to run: any program will do, if it
// is never taken. test/e2e runs the images of the agent.
func TestImportedImagesRunTheirPrograms(t *testing.T) {
	c := startCluster(t)
	n := startNode(t, c, "node-a")
	dir := t.TempDir()
	goTool := func(env []string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = c.module, append(append(os.Environ(), "CGO_ENABLED=0"), env...)
		said, err := cmd.CombinedOutput()
		assert.Must(t, err == nil, "%v: %s", err, said)
	}
	other := map[string]string{"arm64": "amd64", "amd64": "arm64"}[runtime.GOARCH]
	own, foreign := filepath.Join(dir, "evenkeel-controller"), filepath.Join(dir, other, "evenkeel-controller")
	goTool(nil, "build", "-trimpath", "-ldflags", "-s -w -X main.version=v9.9.9", "-o", own, "./cmd/evenkeel-controller")
	goTool([]string{"GOARCH=" + other}, "build", "-o", foreign, "./testkit/localcluster/sleep")
	goTool(nil, "run", "./build/image/pack", "-dir", dir, "-user", "65532:65532", "evenkeel.dev/controller:v9.9.9", own, foreign)
	assert.NoError(t, n.ImportArchive(t.Context(), filepath.Join(dir, "evenkeel-controller-v9.9.9-amd64-arm64.tar")))

	client := admin(t, c)
	kubelet := assert.Value(runKubelet(t.Context(), n, client))(t)
	t.Cleanup(func() { _ = kubelet.Stop(time.Second) })
	pods := client.CoreV1().Pods("default")
	pod := SleepingPod("controller")
	pod.Spec.NodeName, pod.Spec.RestartPolicy = n.Name(), corev1.RestartPolicyNever
	pod.Spec.Containers = []corev1.Container{{
		Name: "controller", Image: "evenkeel.dev/controller:v9.9.9", ImagePullPolicy: corev1.PullNever, Args: []string{"version"},
		SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(true)}, // the kubelet refuses an image that does not say so
	}}
	assert.NoError(t, assert.Err(pods.Create(t.Context(), pod, metav1.CreateOptions{})))
	eventually(t, time.Minute, func(ctx context.Context) error {
		pod, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		return errors.Join(err, assert.Unless(pod.Status.Phase == corev1.PodSucceeded, "%s", pod.Status.String()))
	})
	said, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	assert.That(t, err == nil && strings.HasPrefix(string(said), "evenkeel-controller v9.9.9\n"), "it says %q (%v)", said, err)
}
