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

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/program"
)

func TestOutcomesAreNamedAsTheComponentsAre(t *testing.T) {
	for theirs, ours := range map[component.Outcome]outcome{component.Accepted: accepted, component.Rejected: rejected, component.CouldNotTell: couldNotTell} {
		if theirs.String() != string(ours) {
			t.Errorf("%s is not %s", theirs, ours)
		}
	}
}

func TestTheWorstJudgementDecides(t *testing.T) {
	for _, tt := range []struct {
		all  []outcome
		want outcome
	}{
		{nil, notJudged},
		{[]outcome{notJudged}, notJudged},
		{[]outcome{notJudged, accepted}, accepted},
		{[]outcome{accepted, unvalidated, accepted}, couldNotTell},
		{[]outcome{couldNotTell, accepted}, couldNotTell},
		{[]outcome{couldNotTell, unvalidated, rejected, accepted, notJudged}, rejected},
	} {
		var all []judgement
		for _, one := range tt.all {
			all = append(all, judgement{Verdict: one})
		}
		if got := overall(all); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.all, got, tt.want)
		}
	}
}

// On a host with cgroup v1 the real kubelet's verdict has such a warning; this one may have v2.
func TestWhatTheHostKeptFromBeingJudgedIsSaidUnderTheVerdict(t *testing.T) {
	var out bytes.Buffer
	a := &app{IOStreams: genericclioptions.IOStreams{Out: &out}}
	a.printJudgement(judgement{
		Place: "f.yaml, document 2", Kind: "KubeletConfiguration", Component: "kubelet", Version: "v1.36.3", Verdict: accepted,
		Warnings: []string{"not judged: failCgroupV1\nis true\x1b[2J"},
	})
	if want := "f.yaml, document 2: kubelet v1.36.3: accepted\n  not judged: failCgroupV1 is true\\x1b[2J\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// validateUntil runs config validate until begun says so, and interrupts it then.
func validateUntil(t *testing.T, begun func() bool, in io.Reader, args ...string) answer {
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
	return answer{<-code, out.String(), errOut.String()}
}

func TestValidateThatIsInterruptedCouldNotTell(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	seen := filepath.Join(t.TempDir(), "seen")
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	if err := os.WriteFile(kubelet, []byte("#!/bin/sh\n>"+seen+"\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	begun := func() bool { _, err := os.Stat(seen); return err == nil }
	file := write(t, header)
	got := validateUntil(t, begun, nil, file, "--component-binary=kubelet="+kubelet)
	if got.code != exitUntold || got.out != "" || got.err != "error: interrupted at "+file+"\n" {
		t.Errorf("%+v", got)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestValidateThatIsInterruptedWhileItWaitsForItsInput(t *testing.T) {
	in, nobody := io.Pipe()
	defer nobody.Close()
	got := validateUntil(t, func() bool { return true }, in, "-")
	if got.code != exitUntold || got.out != "" || got.err != "error: interrupted: nothing was judged\n" {
		t.Errorf("%+v", got)
	}
}

func TestValidateReportsAnOutputThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var errOut strings.Builder
	code := Run(t.Context(), program.NewInfo("kubectl-evenkeel", "v0.0.0-test", ""), []string{"config", "validate", write(t, header), "-o", "json"},
		genericclioptions.IOStreams{Out: full, ErrOut: &errOut})
	if code != exitUntold || errOut.String() != "error: write /dev/full: no space left on device\n" {
		t.Errorf("%d, %s", code, errOut.String())
	}
}
