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

func TestImportedImagesRunTheirPrograms(t *testing.T) {
	c := startCluster(t)
	n := startNode(t, c, "node-a")
	dir := t.TempDir()
	command := func(env []string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = c.module, append(append(os.Environ(), "CGO_ENABLED=0"), env...)
		said, err := cmd.CombinedOutput()
		assert.Must(t, err == nil, "%v: %s", err, said)
	}
	for _, program := range []string{"evenkeel-agent", "evenkeel-controller"} {
		command(nil, "build", "-trimpath", "-ldflags", "-s -w -X main.version=v9.9.9", "-o", filepath.Join(dir, program), "./cmd/"+program)
	}

	// What another architecture runs is not for this machine to run: any
	// program will do, if it is never taken.
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}

	foreign := filepath.Join(dir, other, "evenkeel-controller")
	command([]string{"GOARCH=" + other}, "build", "-o", foreign, "./testkit/localcluster/sleep")
	for _, args := range [][]string{
		{"evenkeel.dev/kubelet:v9.9.9", filepath.Join(dir, "evenkeel-agent"), n.KubeletPath()},
		{"-user", "65532:65532", "evenkeel.dev/controller:v9.9.9", filepath.Join(dir, "evenkeel-controller"), foreign},
	} {
		command(nil, append([]string{"run", "./build/image/pack", "-dir", dir}, args...)...)
	}

	for _, name := range []string{"evenkeel-kubelet-v9.9.9-" + runtime.GOARCH, "evenkeel-controller-v9.9.9-amd64-arm64"} {
		assert.NoError(t, n.ImportArchive(t.Context(), filepath.Join(dir, name+".tar")))
	}

	client := admin(t, c)
	kubelet := assert.Value(runKubelet(t.Context(), n, client))(t)
	t.Cleanup(func() { _ = kubelet.Stop(time.Second) })
	pods := client.CoreV1().Pods("default")
	notRoot := true // the kubelet refuses an image that does not say so
	for name, tt := range map[string]struct {
		image         string
		args, command []string
		want          string
		security      *corev1.SecurityContext
	}{
		"agent":      {image: "kubelet", args: []string{"version"}, want: "evenkeel-agent v9.9.9\n"}, // the image's own entrypoint
		"kubelet":    {image: "kubelet", command: []string{"/kubelet", "--version"}, want: "Kubernetes v1."},
		"controller": {image: "controller", args: []string{"version"}, want: "evenkeel-controller v9.9.9\n", security: &corev1.SecurityContext{RunAsNonRoot: &notRoot}},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				NodeName: n.Name(), AutomountServiceAccountToken: new(bool), RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{
					Name: name, Image: "evenkeel.dev/" + tt.image + ":v9.9.9", ImagePullPolicy: corev1.PullNever, Command: tt.command, Args: tt.args,
					SecurityContext: tt.security,
				}},
			},
		}
		assert.NoError(t, assert.Err(pods.Create(t.Context(), pod, metav1.CreateOptions{})))
		eventually(t, time.Minute, func(ctx context.Context) error {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			return errors.Join(err, assert.Unless(pod.Status.Phase == corev1.PodSucceeded, "%s: %s", name, pod.Status.String()))
		})
		said, err := pods.GetLogs(name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		assert.That(t, err == nil && strings.HasPrefix(string(said), tt.want), "%s says %q, want %q (%v)", name, said, tt.want, err)
	}
}
