package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/internal/program"
)

// validateUnknown is the exit code of "config validate" for a configuration that could not be judged.
const validateUnknown = 2

// validateUntil runs config validate until begun says so, and interrupts it then.
func validateUntil(t *testing.T, begun func() bool, in io.Reader, args ...string) result {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errOut bytes.Buffer
	code := make(chan int)
	go func() {
		code <- Run(ctx, program.NewInfo("kubectl-evenkeel", "v0.0.0-test", ""), append([]string{"config", "validate"}, args...), genericclioptions.IOStreams{In: in, Out: &out, ErrOut: &errOut})
	}()
	for deadline := time.After(time.Minute); !begun(); {
		select {
		case <-deadline:
			t.Fatal("it did not begin")
		case c := <-code:
			t.Fatalf("it ended with %d: %s", c, errOut.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	interrupt()
	return result{<-code, out.String(), errOut.String()}
}

func TestInterruptedValidateHasNoVerdict(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	seen := filepath.Join(t.TempDir(), "seen")
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	if err := os.WriteFile(kubelet, []byte("#!/bin/sh\n>"+seen+"\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	begun := func() bool { _, err := os.Stat(seen); return err == nil }
	file := write(t, header)
	got := validateUntil(t, begun, nil, file, "--component-binary=kubelet="+kubelet)
	if got.code != validateUnknown || got.out != "" || got.err != "error: interrupted at "+file+"\n" {
		t.Errorf("%+v", got)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestValidateIsInterruptedWhileReadingStandardInput(t *testing.T) {
	in, nobody := io.Pipe()
	defer nobody.Close()
	got := validateUntil(t, func() bool { return true }, in, "-")
	if got.code != validateUnknown || got.out != "" || got.err != "error: interrupted: nothing was judged\n" {
		t.Errorf("%+v", got)
	}
}

func TestValidateReportsAWriteError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var errOut strings.Builder
	code := Run(t.Context(), program.NewInfo("kubectl-evenkeel", "v0.0.0-test", ""), []string{"config", "validate", write(t, header), "-o", "json"},
		genericclioptions.IOStreams{Out: full, ErrOut: &errOut})
	if code != validateUnknown || errOut.String() != "error: write /dev/full: no space left on device\n" {
		t.Errorf("%d, %s", code, errOut.String())
	}
}
