// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// rendered is the content of a directory.
func rendered(t *testing.T, fsys *crashfs.FS, at string) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries, err := fsys.ReadDir(at)
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range entries {
		if e.IsDir() {
			for name, data := range rendered(t, fsys, at+"/"+e.Name()) {
				found[e.Name()+"/"+name] = data
			}

			continue
		}

		data, err := fsys.ReadFile(at + "/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}

		found[e.Name()] = string(data)
	}

	return found
}

var (
	before = map[string][]byte{"kubelet": []byte("old"), "kubelet.conf.d/10.conf": []byte("stale"), "kubelet.conf.d/deep/20.conf": []byte("stale")}
	after  = map[string][]byte{"kubelet": []byte("new"), "kubelet.conf.d/30.conf": []byte("fresh")}
)

func TestRenderReplacesTheWholeDirectory(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	first, err := s.Render("uid-a", before)
	if err != nil || first != dir+"/rendered/uid-a" || len(rendered(t, fsys, first)) != 3 {
		t.Fatalf("%s, %v, %v", first, rendered(t, fsys, first), err)
	}

	second, err := s.Render("uid-a", after)
	want := map[string]string{"kubelet": "new", "kubelet.conf.d/30.conf": "fresh"}
	if err != nil || second != first || cmp.Diff(want, rendered(t, fsys, second)) != "" {
		t.Errorf("%s, %v, %v", second, rendered(t, fsys, second), err)
	}
	if got := rendered(t, fsys, dir+"/rendered"); len(got) != 2 {
		t.Errorf("something else was left: %v", got)
	}
	if got := s.Rendered(); len(got) != 1 || got[0] != "uid-a" {
		t.Errorf("%v", got)
	}
}

func TestRenderLeavesOldOrNewFilesAfterAnyFailure(t *testing.T) {
	for n := 1; ; n++ {
		fsys := crashfs.New()
		s := open(t, fsys)
		if _, err := s.Render("uid-a", before); err != nil {
			t.Fatal(err)
		}

		fsys.FailAt(n, syscall.ENOSPC)
		_, err := s.Render("uid-a", after)
		got := rendered(t, fsys, dir+"/rendered/uid-a")
		switch {
		case err == nil && got["kubelet"] == "new" && len(got) == 2:
		case errors.Is(err, syscall.ENOSPC) && strings.HasPrefix(err.Error(), "render uid-a: ") && got["kubelet"] == "old" && len(got) == 3:
		default:
			t.Errorf("operation %d failed: %v, %v", n, err, got)
		}

		if err == nil && fsys.Operations() < n {
			t.Fatal("no operation was left to fail")
		}
		if s := open(t, fsys); len(s.Rendered()) != 1 || len(rendered(t, fsys, dir+"/rendered")) != len(got) {
			t.Errorf("operation %d failed: leftovers stay: %v", n, rendered(t, fsys, dir+"/rendered"))
		}
		if err == nil && n > 20 {
			return
		}
	}
}

func TestRenderedWithoutADirectoryIsEmpty(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	if err := fsys.Remove(dir + "/rendered"); err != nil {
		t.Fatal(err)
	}
	if got := s.Rendered(); got != nil {
		t.Errorf("%v", got)
	}
	if _, err := s.Render("uid-a", after); err != nil {
		t.Errorf("the directory vanished: %v", err)
	}
}

func TestForgetRequestsReachTheStoreOnce(t *testing.T) {
	fsys, s := saved(t, trial.State{})
	if got, err := s.ForgetRequests(); got != nil || err != nil {
		t.Errorf("none yet: %v, %v", got, err)
	}

	for _, revision := range []string{"uid-b", "uid-a", "uid-b"} {
		if err := checkpoint.RequestForget(fsys, dir, revision); err != nil {
			t.Fatal(err)
		}
	}

	fsys.Plant(dir+"/forget-requests/.not a revision", nil)
	s = open(t, fsys.Reboot(crashfs.Choices["all lost"]))
	if got, err := s.ForgetRequests(); err != nil || cmp.Diff([]string{"uid-a", "uid-b"}, got) != "" {
		t.Errorf("%v, %v", got, err)
	}
	if err := errors.Join(s.DropForgetRequest("uid-a"), s.DropForgetRequest("uid-a")); err != nil {
		t.Error(err)
	}
	if got, err := s.ForgetRequests(); err != nil || cmp.Diff([]string{"uid-b"}, got) != "" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestEntryRemovedByHandFromBadConfigsIsForgotten(t *testing.T) {
	const file = version + "/bad-configs"
	state := full()
	state.Bad = append(state.Bad, trial.BadConfig{Revision: "uid-d", Time: noon, Reason: "r", Failure: v1alpha1.ReasonCrashLooped})
	fsys, s := saved(t, state)
	one, two := read(t, fsys, file), full().Bad
	if err := open(t, fsys).Save(trial.State{}); err != nil { // what an empty list looks like
		t.Fatal(err)
	}

	none := read(t, fsys, file)
	for content, want := range map[string][]string{
		one: nil, none: {"uid-c", "uid-d"}, strings.Replace(one, `"uid-d"`, `"uid-e"`, 1): {"uid-d"},
		"": nil, one[:len(one)/2]: nil, strings.Replace(one, "v1alpha1", "v2", 1): nil,
	} {
		fsys.Plant(dir+"/"+file, []byte(content))
		if got, err := s.ForgetRequests(); err != nil || !slices.Equal(got, want) {
			t.Errorf("with %q: %q, %v, want %q", content, got, err, want)
		}
	}

	if err := fsys.Remove(dir + "/" + file); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ForgetRequests(); err != nil || got != nil {
		t.Errorf("an editor may be replacing the file: %q, %v", got, err)
	}
	if err := checkpoint.RequestForget(fsys, dir, "uid-d"); err != nil { // in both ways
		t.Fatal(err)
	}

	fsys.Plant(dir+"/"+file, []byte(none))
	if got, err := s.ForgetRequests(); err != nil || !slices.Equal(got, []string{"uid-c", "uid-d"}) {
		t.Errorf("%q, %v", got, err)
	}

	state.Bad = two
	if err := s.Save(state); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ForgetRequests(); err != nil || !slices.Equal(got, []string{"uid-d"}) {
		t.Errorf("only the request is left, but it returned %q, %v", got, err)
	}
}

func TestForgetRequestErrorsNameTheOperation(t *testing.T) {
	for n := range 5 {
		fsys, _ := saved(t, trial.State{})
		fsys.FailAt(n+1, syscall.EROFS)
		if err := checkpoint.RequestForget(fsys, dir, "uid-a"); !errors.Is(err, syscall.EROFS) || !strings.HasPrefix(err.Error(), "request to forget uid-a: ") {
			t.Errorf("operation %d failed: %v", n+1, err)
		}
	}

	fsys, s := saved(t, trial.State{})
	if err := checkpoint.RequestForget(fsys, "/nowhere", "uid-a"); err == nil {
		t.Error("there is no such directory")
	}
	if err := checkpoint.RequestForget(fsys, dir, "uid-a"); err != nil {
		t.Fatal(err)
	}

	fsys.FailAt(1, syscall.EROFS)
	if err := s.DropForgetRequest("uid-a"); !errors.Is(err, syscall.EROFS) {
		t.Errorf("drop: %v", err)
	}

	fsys.FailRead(dir+"/forget-requests", syscall.EACCES)
	if _, err := s.ForgetRequests(); !errors.Is(err, syscall.EACCES) {
		t.Errorf("list: %v", err)
	}
}
