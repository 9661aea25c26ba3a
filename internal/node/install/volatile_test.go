// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// mounted mounts a file system in a new directory, which is unmounted when the
// test ends.
func mounted(t *testing.T, kind, options string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}

	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", kind, "-o", options, "none", dir).CombinedOutput()
	assert.Must(t, err == nil, "%v: %s", err, out)
	t.Cleanup(func() {
		out, err := exec.Command("umount", dir).CombinedOutput()
		assert.That(t, err == nil, "%v: %s", err, out)
	})

	return dir
}

func TestVolatileDirectoryIsRecognized(t *testing.T) {
	memory := mounted(t, "tmpfs", "mode=755")
	upper, work := filepath.Join(memory, "upper"), filepath.Join(memory, "work")
	assert.NoError(t, errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)))
	overlay := mounted(t, "overlay", fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", t.TempDir(), upper, work))
	none := filepath.Join(memory, "none")
	for _, tt := range []struct {
		dir, mounts string
		want        bool
	}{
		{memory, none, true},
		{filepath.Join(memory, "not", "there"), none, true},
		{"/proc", none, false},
		{overlay, "/proc/self/mountinfo", true},
		{filepath.Join(overlay, "not", "there"), "/proc/self/mountinfo", true},
		{overlay, none, false},
	} {
		assert.Equal(t, Volatile(tt.dir, tt.mounts), tt.want, "Volatile", tt.dir, tt.mounts, "=")
	}
}

func TestUpperDirIsThatOfTheLastMountAbove(t *testing.T) {
	mounts := filepath.Join(t.TempDir(), "mountinfo")
	text := "1 0 0:1 / / rw shared:1 - overlay overlay rw,lowerdir=/l,upperdir=/root,workdir=/w\n" +
		"2 1 0:2 / /etc rw - overlay overlayfs rw,lowerdir=/etc,upperdir=/tmp/etc,workdir=/tmp/work\n" +
		"3 1 0:3 / /etcetera rw - tmpfs tmpfs rw\n" +
		"4 2 0:4 / /etc/kubernetes rw - tmpfs tmpfs rw\n" +
		"broken\n"
	assert.NoError(t, os.WriteFile(mounts, []byte(text), 0o644))
	for dir, want := range map[string]string{"/etc/systemd/system": "/tmp/etc", "/opt": "/root", "/etc/kubernetes/x": "", "/etcetera": ""} {
		assert.Equal(t, upperDir(dir, mounts), want, dir)
	}
}

func TestInstallWarnsWhereARebootDiscardsTheDropIn(t *testing.T) {
	n := newNode(t)
	n.Volatile = func(dir string) bool { return dir == n.UnitDir }
	want := "warning: " + n.UnitDir + " is in memory: after a reboot the node runs its plain kubelet. Install again at each boot, as the pod of the installer does, or add the output of --dry-run to what creates the directory\n"
	r := n.request()
	r.DryRun = true
	words, err := n.Install(t.Context(), r)
	assert.That(t, err == nil && strings.HasPrefix(words, "# "+want), "dry run: %v\n%s", err, words)
	n.installs()
	assert.That(t, strings.HasPrefix(n.out.String(), want), "it says %s\nwant %s", n.out, want)
}

func TestProgramGoesWhereItCanBeInstalled(t *testing.T) {
	plain, readOnly, noExec := mounted(t, "tmpfs", "mode=755"), mounted(t, "tmpfs", "ro"), mounted(t, "tmpfs", "noexec")
	for _, tt := range []struct {
		dirs []string
		want string
	}{
		{[]string{plain, readOnly}, plain},
		{[]string{readOnly, filepath.Join(plain, "opt", "bin")}, filepath.Join(plain, "opt", "bin")},
		{[]string{filepath.Join(readOnly, "bin"), noExec, plain}, plain},
		{[]string{readOnly, noExec}, readOnly},
	} {
		assert.Equal(t, firstUsable(tt.dirs), tt.want, "of", tt.dirs, "it takes")
	}
}
