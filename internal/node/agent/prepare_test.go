// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// askedKubelet is the real kubelet behind a script that records its calls.
type askedKubelet struct {
	t    *testing.T
	dir  string
	host *HostKubelet
}

func newAskedKubelet(t *testing.T) *askedKubelet {
	t.Helper()
	localcluster.SkipShort(t)
	real := assert.Value(filepath.Abs("../../../bin/tools/kubelet"))(t)
	if _, err := os.Stat(real); err != nil {
		t.Fatalf("%v; run make tools", err)
	}

	c := &askedKubelet{t: t, dir: t.TempDir()}
	c.write("kubelet", fmt.Sprintf("#!/bin/sh\ncase $1 in --version) echo version ;; *) echo judge ;; esac >>%s/asked\nexec %s \"$@\"\n", c.dir, real))
	assert.NoError(t, os.Chmod(c.file("kubelet"), 0o755))
	c.local("maxPods: 111")
	k := assert.Value(component.ParseKubelet([]string{c.file("kubelet"), "--config=" + c.file("config")}))(t)
	log := slog.New(slog.DiscardHandler)
	c.host = &HostKubelet{Kubelet: k, DryRunner: component.NewDryRunner(k, filepath.Join(c.dir, "scratch"), log), Log: log}

	return c
}

func (c *askedKubelet) file(name string) string { return filepath.Join(c.dir, name) }

func (c *askedKubelet) write(name, content string) {
	c.t.Helper()
	if err := os.WriteFile(c.file(name), []byte(content), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *askedKubelet) local(field string) {
	c.write("config", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n"+field+"\n")
}

// asked returns how often the kubelet was run since the last call.
func (c *askedKubelet) asked() int {
	c.t.Helper()
	raw, err := os.ReadFile(c.file("asked"))
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}

	c.write("asked", "")

	return strings.Count(string(raw), "\n")
}

func (c *askedKubelet) prepare(want component.Outcome) {
	c.t.Helper()
	if v, err := c.host.Prepare(c.t.Context()); err != nil || v.Outcome != want {
		c.t.Fatalf("prepared: %+v, %v, want %s", v, err, want)
	}

	c.asked()
}

// judged checks the verdict on the local configuration, and whether the kubelet
// was run for it.
func (c *askedKubelet) judged(want component.Outcome, words string, anew bool) {
	c.t.Helper()
	v := c.host.CheckLocal(c.t.Context())
	if v.Outcome != want || !strings.Contains(v.Message, words) {
		c.t.Errorf("judged %s, %q, want %s, %q", v.Outcome, v.Message, want, words)
	}
	if asked := c.asked(); (asked > 0) != anew {
		c.t.Errorf("the kubelet was asked %d times, want some: %t", asked, anew)
	}
}

func TestKubeletWithoutLockFileFlagRunsWithoutIt(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   string // the lock that it is given; none: it cannot be run
		err    string
	}{
		"it does":          {"echo Kubernetes v1.37.2", "/run/lock", ""},
		"it does not":      {`case "$*" in *lock-file*) echo 'E1122 13:18:48.173756    3352 run.go:72] "command failed" err="failed to parse kubelet flag: unknown flag: --lock-file"' >&2; exit 1 ;; esac; echo Kubernetes v1.40.0`, "", ""},
		"it cannot be run": {"echo out of order >&2; exit 3", "/run/lock", "out of order"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubelet")
			assert.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+test.script+"\n"), 0o755))
			k := assert.Value(component.ParseKubelet([]string{path}))(t)
			h := &HostKubelet{Kubelet: k, LockFile: "/run/lock", Log: slog.New(slog.DiscardHandler)}
			if _, err := h.Version(t.Context()); (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			assert.Equal(t, h.lockFile(), test.want, "its lock")
		})
	}
}

func TestPreparedVerdictIsUsedOnce(t *testing.T) {
	c := newAskedKubelet(t)
	c.prepare(component.Accepted)
	for range 2 {
		version, err := c.host.Version(t.Context())
		assert.That(t, err == nil && version == "v1.37.2" && c.asked() == 0,
			"the version is %q, %v, or the kubelet was asked for it", version, err)
	}

	c.judged(component.Accepted, "", false)
	c.judged(component.Accepted, "", true) // the next start's
}

func TestConfigEditedAfterPrepareIsValidatedAgain(t *testing.T) {
	c := newAskedKubelet(t)
	c.prepare(component.Accepted)
	c.local("maxPods: -1")
	c.judged(component.Rejected, "maxPods", true)

	c.prepare(component.Rejected)
	c.judged(component.Rejected, "maxPods", false)
}

func TestKubeletReplacedAfterPrepareIsExaminedAgain(t *testing.T) {
	c := newAskedKubelet(t)
	c.prepare(component.Accepted)
	c.write("kubelet", "#!/bin/sh\necho >>"+c.file("asked")+"\n[ \"$1\" = --version ] && echo Kubernetes v1.36.99\n")
	version, err := c.host.Version(t.Context())
	assert.That(t, err == nil && version == "v1.36.99" && c.asked() != 0, "the version is %q, %v", version, err)
	c.judged(component.CouldNotTell, "the dry run does not work with this kubelet", true)

	c.prepare(component.CouldNotTell)
	c.judged(component.CouldNotTell, "", true) // nothing to keep
}

func TestPrepareReturnsAnErrorIfTheKubeletCannotRun(t *testing.T) {
	c := newAskedKubelet(t)
	c.write("kubelet", "#!/bin/sh\nexit 1\n")
	_, err := c.host.Prepare(t.Context())
	assert.That(t, err != nil && strings.Contains(err.Error(), "version"), "without a version: %v", err)
	assert.NoError(t, os.Remove(c.file("kubelet")))
	if _, err := c.host.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no kubelet at "+c.file("kubelet")) {
		t.Errorf("without a kubelet: %v", err)
	}
}
