package config

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// flagged returns the components of a command line.
func flagged(t *testing.T, args ...string) componentFlags {
	t.Helper()
	var f componentFlags
	cmd := &cobra.Command{}
	f.add(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestComponentsLeaveNoTemporaryFiles(t *testing.T) {
	localcluster.SkipShort(t)
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	f := flagged(t, "--component-binary", "kubelet=../../../bin/tools/kubelet", "--component-binary=kube-proxy=../../../bin/tools/kube-proxy")
	all, done, err := f.open(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubelet", "kube-proxy"} {
		if all[name] == nil || all[name].Name() != name {
			t.Errorf("of %s there is %v", name, all[name])
			continue
		}
		if defaults, err := all[name].Defaults(t.Context()); err != nil || len(defaults) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) != 1 {
		t.Errorf("they use %v, %v", left, err)
	}
	done()
	if left, err := os.ReadDir(scratch); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestWithoutComponentsThereIsNoTemporaryDirectory(t *testing.T) {
	t.Setenv("TMPDIR", "/nowhere")
	f := flagged(t)
	all, done, err := f.open(io.Discard)
	done()
	if len(all) != 0 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
}

func TestAMissingComponentIsAnError(t *testing.T) {
	localcluster.SkipShort(t)
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	f := flagged(t, "--component-binary=kube-proxy=../../../bin/tools/kube-proxy", "--component-binary=kubelet=/nowhere/kubelet")
	all, done, err := f.open(io.Discard)
	done()
	if want := "--component-binary=kubelet=/nowhere/kubelet: there is no kubelet at /nowhere/kubelet: file does not exist"; all != nil || err == nil || err.Error() != want {
		t.Errorf("%v, %v, want %s", all, err, want)
	}
	if left, err := filepath.Glob(scratch + "/*"); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	t.Setenv("TMPDIR", "/nowhere")
	if _, done, err = f.open(io.Discard); err == nil {
		t.Error("there is no directory for throw-away files, and no error")
	}
	done()
}
