// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard_test opens the page of `kubectl evenkeel dashboard` in a
// real browser, headless Chromium, in front of a real API server, the real
// controller, and hollow nodes with real agents.
package dashboard_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

const (
	root   = "../.."
	within = 5 * time.Minute // on a busy machine
)

var (
	cluster  *localcluster.Cluster
	admin    client.WithWatch
	chromium string // path; empty: there is none
	pictures = flag.String("pictures", "", "directory to put pictures of the page into")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(localcluster.RunTests(localcluster.Options{}, func(ctx context.Context, c *localcluster.Cluster) (_ int, err error) {
		cluster = c
		klog.SetLogger(logr.Discard()) // watches that end with their test
		if chromium, err = exec.LookPath("chromium"); err != nil {
			fmt.Fprintln(os.Stderr, "SKIPPED, for lack of chromium: every test that needs a browser")
		}

		if err := cluster.Apply(ctx, filepath.Join(root, "config/controller")); err != nil {
			return 0, err
		}
		if admin, err = cluster.Client(v1alpha1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme); err != nil {
			return 0, err
		}

		return m.Run(), nil
	}))
}

// spawn starts a program, which ends with the test.
func spawn(t *testing.T, name string, args ...string) *localcluster.Process {
	t.Helper()
	path := assert.Value(bed.Program(name))(t)
	c := assert.Value(localcluster.StartProcess(name, filepath.Join(t.TempDir(), name+".log"), exec.Command(path, args...)))(t)
	t.Cleanup(func() { assert.OK(t, c.Stop(within)) })

	return c
}

// serve starts `kubectl evenkeel dashboard` and returns the address that it
// prints.
func serve(t *testing.T, kubeconfig string, args ...string) (string, *localcluster.Process) {
	t.Helper()
	c := spawn(t, "kubectl-evenkeel", append([]string{"dashboard", "--port=0", "--kubeconfig=" + kubeconfig}, args...)...)
	var address string
	eventually(t, func() error {
		for line := range strings.Lines(c.Said()) {
			if rest, ok := strings.CutPrefix(line, "open "); ok {
				address = strings.TrimSpace(rest)
				return nil
			}
		}

		select {
		case <-c.Done:
			t.Fatalf("the dashboard has ended:\n%s", c.Said())
		default:
		}

		return errors.New("it has printed no address")
	})

	return address, c
}

// eventually waits until there is no error any more.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	assert.NoError(t, bed.Eventually(t.Context(), within, func(context.Context) error { return try() }))
}

// controller starts the controller and waits until it is ready.
func controller(t *testing.T) {
	t.Helper()
	const probes = "127.0.0.1:18087"
	spawn(t, "evenkeel-controller", "--kubeconfig="+cluster.AdminKubeconfig(), "--leader-elect=false", "--metrics-bind-address=0",
		"--health-probe-bind-address="+probes)
	eventually(t, func() error { return localcluster.Probe(t.Context(), "http://"+probes+"/readyz") })
}
