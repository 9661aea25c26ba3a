// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// tree writes files into a new directory and returns its path.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		assert.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		assert.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}

	return dir
}

func TestACandidateIsOneFileIfTheNodeHasNoDropIns(t *testing.T) {
	dir := tree(t, map[string]string{"10.conf": "a"})
	for name, tt := range map[string]struct {
		configDir, initFile, want string
		dropin                    bool
	}{
		"a whole configuration": {"/nowhere", "", "kubelet", false}, "no directory": {"", "", "kubelet.conf.d/evenkeel.conf", true},
		"an init file": {dir, "/init", "kubelet.conf.d/evenkeel.conf", true}, "an empty directory": {t.TempDir(), "", "kubelet.conf.d/evenkeel.conf", true},
	} {
		files, err := (&Kubelet{Config: "/a", ConfigDir: tt.configDir}).Files(Candidate{Data: []byte("ours"), Dropin: tt.dropin}, tt.initFile)
		assert.NoError(t, err)
		assert.NoDiff(t, cmp.Diff(map[string][]byte{tt.want: []byte("ours")}, files), name)
	}
}

func TestADropInIsRenderedAfterTheNodesOwn(t *testing.T) {
	dir := tree(t, map[string]string{
		"10-cgroup.conf": "a", "sub/00.conf": "b", "sub/deep/x.conf": "c", "sub.conf": "d", "zz.conf/y.conf": "e",
		"ZZ.conf": "f", ".conf": "g", "ä b.conf": "h", strings.Repeat("l", 200) + ".conf": "i", "README": "no", "x.conf.bak": "no",
	})
	assert.NoError(t, os.Symlink("README", filepath.Join(dir, "link.conf")))
	k := &Kubelet{ConfigDir: dir}
	files := assert.Value(k.Files(Candidate{Data: []byte("ours"), Dropin: true}, ""))(t)
	var got []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		got = append(got, name+": "+string(files[name]))
	}

	want := []string{
		"kubelet.conf.d/000-.conf: g",
		"kubelet.conf.d/001-10-cgroup.conf: a",
		"kubelet.conf.d/002-ZZ.conf: f",
		"kubelet.conf.d/003-link.conf: no",
		"kubelet.conf.d/004-" + strings.Repeat("l", 100) + ".conf: i",
		"kubelet.conf.d/005-sub-00.conf: b",
		"kubelet.conf.d/006-sub-deep-x.conf: c",
		"kubelet.conf.d/007-sub.conf: d",
		"kubelet.conf.d/008-zz.conf-y.conf: e",
		"kubelet.conf.d/009-__b.conf: h",
		"kubelet.conf.d/evenkeel.conf: ours",
	}
	assert.NoDiff(t, cmp.Diff(want, got))
}

func TestASymbolicLinkAsDropInDirectoryIsReadLikeTheKubeletDoes(t *testing.T) {
	dir := tree(t, map[string]string{"10.conf": "a"})
	link := filepath.Join(t.TempDir(), "link")
	assert.NoError(t, os.Symlink(dir, link))
	for configDir, want := range map[string]int{link: 1, link + "/": 2} { // WalkDir does not follow the first
		files, err := (&Kubelet{ConfigDir: configDir}).Files(Candidate{Dropin: true}, "")
		assert.That(t, err == nil && len(files) == want, "%s: %d files, want %d, error %v", configDir, len(files), want, err)
	}
}

func TestAnErrorNamesTheDropInDirectoryThatCannotBeCopied(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(dir string) error
		want string // after the path of the directory
	}{
		"it is not there":           {os.Remove, ": lstat DIR: no such file or directory"},
		"a link that leads nowhere": {func(dir string) error { return os.Symlink("nowhere", dir+"/x.conf") }, ": open DIR/x.conf: no such file or directory"},
		"a link to a directory":     {func(dir string) error { return os.Symlink("..", dir+"/x.conf") }, ": DIR/x.conf is not a regular file"},
		"a pipe":                    {func(dir string) error { return syscall.Mkfifo(dir+"/x.conf", 0o600) }, ": DIR/x.conf is not a regular file"},
		"too many": {func(dir string) error {
			var errs []error
			for i := range 1001 {
				errs = append(errs, os.WriteFile(fmt.Sprintf("%s/%d.conf", dir, i), nil, 0o600))
			}

			return errors.Join(errs...)
		}, ": it has more than 1000 files"},
		"too large": {func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/a.conf", make([]byte, 5<<20), 0o600), os.WriteFile(dir+"/b.conf", make([]byte, 3<<20+1), 0o600))
		}, ": DIR/b.conf is larger than the limit of 3145728 bytes"},
	} {
		dir := t.TempDir()
		assert.NoError(t, tt.make(dir), name)
		want := strings.ReplaceAll("the node's own drop-in directory DIR"+tt.want, "DIR", dir)
		k := fake(t, "accept")
		k.ConfigDir = dir
		assert.Error(t, assert.Err(k.Files(Candidate{Dropin: true}, "")), want, name)
		checkVerdict(t, dryRunner(t, k).Check(context.Background(), Candidate{Dropin: true}, ""), CouldNotTell, 0, want, name)
	}
}

func TestVerdictsOnDropInsWithAFakeKubelet(t *testing.T) {
	const lenient = `log '"Using lenient decoding as strict decoding failed" err="unknown field x"'`
	for _, tt := range []verdictTest{
		{"accepted in both stages", `case "$config$dropins" in LOCALOWNOURS|LOCALOWN|OURS|*no-runtime*) accept;; esac; end "$config$dropins"`, Accepted, 2, ""},
		{"unknown field and another error", `case "$config" in OURS) ` + lenient + `; end "no good";; esac; accept`, Rejected, 1, "unknown field x"},
		{"incomplete", `case "$config" in OURS) end "no good";; esac; accept`, Accepted, 2, ""},
		{"not to be decoded", `case "$config" in OURS) end "failed to load kubelet config file, path: $file, error: no good";; esac; accept`, Rejected, 1, "no good"},
		{"no answer about strict decoding", `case "$config" in OURS) kill -9 $$;; esac; accept`, CouldNotTell, 1, "the dry run of the kubelet: it died: signal: killed"},
		{"unknown field in the local configuration", `case "$config" in LOCAL) ` + lenient + `;; esac; accept`, Accepted, 2, ""},
		{"a local configuration that fails", `case "$config" in LOCAL) end "no good";; esac; accept`, CouldNotTell, 1,
			"no good (but the local configuration does not pass the dry run either, for the same reason)"},
		{"the wrapping of errors", `for a in "$@"; do case "$a" in --config-dir=*scratch*) d="${a#--config-dir=}"
			end "failed to merge kubelet configs: failed to walk through kubelet dropin directory \\\"$d\\\": failed to load kubelet dropin file, path: $d/evenkeel.conf, error: $d is no good";; esac; done; accept`,
			Rejected, 1, "kubelet.conf.d is no good"},
	} {
		k := fakeWithLocal(t, tt.body, "LOCAL", "--config-dir="+tree(t, map[string]string{"10.conf": "OWN"}))
		v := dryRunner(t, k).Check(context.Background(), Candidate{Data: []byte("OURS"), Dropin: true}, "")
		checkVerdict(t, v, tt.outcome, tt.stage, tt.message, tt.name)
	}
}

func TestADryRunThatCannotWriteItsFilesGivesNoVerdict(t *testing.T) {
	h := dryRunner(t, fake(t, "accept"))
	got := h.run(context.Background(), dryRun{stage: 1, config: configuration{files: map[string][]byte{"pki/kubelet.crt/x": nil}}})
	assert.That(t, got.outcome == CouldNotTell && strings.HasPrefix(got.message, "no scratch file for the dry run: mkdir "+h.scratch), "got %s: %s", got.outcome, got.message)
	got = h.run(context.Background(), dryRun{stage: 1, config: configuration{files: map[string][]byte{"pki": nil}}})
	assert.That(t, got.outcome == CouldNotTell && strings.HasSuffix(got.message, "/pki: is a directory"), "got %s: %s", got.outcome, got.message)
}
