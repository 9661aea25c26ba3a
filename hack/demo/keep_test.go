package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheUserOfSudoCanReadTheKubeconfig(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	file := filepath.Join(t.TempDir(), "admin.conf")
	assert.NoError(t, os.WriteFile(file, []byte("kubeconfig"), 0o600))
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("SUDO_UID", "12345")
	path, remove, err := readableCopy(file)
	assert.NoError(t, err)
	info := assert.Value(os.Stat(path))(t)
	owner := info.Sys().(*syscall.Stat_t).Uid
	if raw, err := os.ReadFile(path); err != nil || string(raw) != "kubeconfig" || owner != 12345 || info.Mode() != 0o600 {
		t.Errorf("content %q, owner %d, mode %s, error %v", raw, owner, info.Mode(), err)
	}
	remove()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the copy was not removed: %v", err)
	}
}

func TestWithoutSudoTheKubeconfigIsNotCopied(t *testing.T) {
	t.Setenv("SUDO_UID", "")
	path, remove, err := readableCopy("admin.conf")
	remove()
	assert.That(t, path == "admin.conf" && err == nil, "path %q, error %v", path, err)
}

func TestARolloutIsOnlyShownIfItExists(t *testing.T) {
	const status = "kubectl evenkeel rollout status demo"
	if !slices.Contains(commands("demo", true), status) || slices.Contains(commands("demo", false), status) {
		t.Errorf("with a rollout: %q; without: %q", commands("demo", true), commands("demo", false))
	}
}
