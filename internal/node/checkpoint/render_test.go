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
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// rendered is the content of a directory.
func rendered(t *testing.T, fsys *crashfs.FS, at string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, e := range assert.Value(fsys.ReadDir(at))(t) {
		if e.IsDir() {
			for name, data := range rendered(t, fsys, at+"/"+e.Name()) {
				found[e.Name()+"/"+name] = data
			}

			continue
		}

		found[e.Name()] = string(assert.Value(fsys.ReadFile(at + "/" + e.Name()))(t))
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
	assert.Must(t, err == nil && first == dir+"/rendered/uid-a" && len(rendered(t, fsys, first)) == 3,
		"%s, %v, %v", first, rendered(t, fsys, first), err)

	second, err := s.Render("uid-a", after)
	want := map[string]string{"kubelet": "new", "kubelet.conf.d/30.conf": "fresh"}
	assert.That(t, err == nil && second == first && cmp.Diff(want, rendered(t, fsys, second)) == "",
		"%s, %v, %v", second, rendered(t, fsys, second), err)
	got := rendered(t, fsys, dir+"/rendered")
	assert.That(t, len(got) == 2, "something else was left: %v", got)
	names := s.Rendered()
	assert.That(t, len(names) == 1 && names[0] == "uid-a", "%v", names)
}

func TestRenderLeavesOldOrNewFilesAfterAnyFailure(t *testing.T) {
	for n := 1; ; n++ {
		fsys := crashfs.New()
		s := open(t, fsys)
		assert.NoError(t, assert.Err(s.Render("uid-a", before)))

		fsys.FailAt(n, syscall.ENOSPC)
		_, err := s.Render("uid-a", after)
		got := rendered(t, fsys, dir+"/rendered/uid-a")
		switch {
		case err == nil && got["kubelet"] == "new" && len(got) == 2:
		case errors.Is(err, syscall.ENOSPC) && strings.HasPrefix(err.Error(), "render uid-a: ") && got["kubelet"] == "old" && len(got) == 3:
		default:
			t.Errorf("operation %d failed: %v, %v", n, err, got)
		}

		assert.Must(t, err != nil || fsys.Operations() >= n, "no operation was left to fail")
		s = open(t, fsys)
		all := rendered(t, fsys, dir+"/rendered")
		assert.That(t, len(s.Rendered()) == 1 && len(all) == len(got), "operation %d failed: leftovers stay: %v", n, all)
		if err == nil && n > 20 {
			return
		}
	}
}

func TestRenderedWithoutADirectoryIsEmpty(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	assert.NoError(t, fsys.Remove(dir+"/rendered"))
	assert.That(t, s.Rendered() == nil, "%v", s.Rendered())
	assert.OK(t, assert.Err(s.Render("uid-a", after)), "the directory vanished")
}

func wantRequests(t *testing.T, s *checkpoint.Store, want ...string) {
	t.Helper()
	got, err := s.ForgetRequests()
	assert.That(t, err == nil && slices.Equal(got, want), "to forget are %q, %v, want %q", got, err, want)
}

func TestForgetRequestsReachTheStoreOnce(t *testing.T) {
	fsys, s := saved(t, trial.State{})
	wantRequests(t, s)
	for _, revision := range []string{"uid-b", "uid-a", "uid-b"} {
		assert.NoError(t, checkpoint.RequestForget(fsys, dir, revision))
	}

	fsys.Plant(dir+"/forget-requests/.not a revision", nil)
	s = open(t, fsys.Reboot(crashfs.Choices["all lost"]))
	wantRequests(t, s, "uid-a", "uid-b")
	assert.OK(t, errors.Join(s.DropForgetRequest("uid-a"), s.DropForgetRequest("uid-a")))
	wantRequests(t, s, "uid-b")
}

func TestEntryRemovedByHandFromBadConfigsIsForgotten(t *testing.T) {
	const file = version + "/bad-configs"
	state := full()
	state.Bad = append(state.Bad, trial.BadConfig{Revision: "uid-d", Time: noon, Reason: "r", Failure: v1alpha1.ReasonCrashLooped})
	fsys, s := saved(t, state)
	one, two := read(t, fsys, file), full().Bad
	assert.NoError(t, open(t, fsys).Save(trial.State{})) // what an empty list looks like
	none := read(t, fsys, file)
	for content, want := range map[string][]string{
		one: nil, none: {"uid-c", "uid-d"}, strings.Replace(one, `"uid-d"`, `"uid-e"`, 1): {"uid-d"},
		"": nil, one[:len(one)/2]: nil, strings.Replace(one, "v1alpha1", "v2", 1): nil,
	} {
		fsys.Plant(dir+"/"+file, []byte(content))
		got, err := s.ForgetRequests()
		assert.That(t, err == nil && slices.Equal(got, want), "with %q: %q, %v, want %q", content, got, err, want)
	}

	assert.NoError(t, fsys.Remove(dir+"/"+file))
	wantRequests(t, s) // an editor may be replacing the file

	assert.NoError(t, checkpoint.RequestForget(fsys, dir, "uid-d")) // in both ways
	fsys.Plant(dir+"/"+file, []byte(none))
	wantRequests(t, s, "uid-c", "uid-d")

	state.Bad = two
	assert.NoError(t, s.Save(state))
	wantRequests(t, s, "uid-d") // only the request is left
}

func TestForgetRequestErrorsNameTheOperation(t *testing.T) {
	for n := range 5 {
		fsys, _ := saved(t, trial.State{})
		fsys.FailAt(n+1, syscall.EROFS)
		err := checkpoint.RequestForget(fsys, dir, "uid-a")
		assert.That(t, errors.Is(err, syscall.EROFS) && strings.HasPrefix(err.Error(), "request to forget uid-a: "),
			"operation %d failed: %v", n+1, err)
	}

	fsys, s := saved(t, trial.State{})
	err := checkpoint.RequestForget(fsys, "/nowhere", "uid-a")
	assert.That(t, err != nil, "there is no such directory")
	assert.NoError(t, checkpoint.RequestForget(fsys, dir, "uid-a"))

	fsys.FailAt(1, syscall.EROFS)
	assert.Is(t, s.DropForgetRequest("uid-a"), syscall.EROFS, "drop")

	fsys.FailRead(dir+"/forget-requests", syscall.EACCES)
	assert.Is(t, assert.Err(s.ForgetRequests()), syscall.EACCES, "list")
}
