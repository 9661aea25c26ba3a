// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// fake returns a fake kubelet, a shell script. Its configuration is in $config,
// read from the file $file, and its drop-ins in $dropins. `end` prints the
// error that ends the process; `accept` ends the current stage successfully;
// `dump` prints a configuration with the fields of every dump, and `accept`
// prints one that is always the same if there was neither a dump nor `quiet`.
// With LENIENT=lenient it ignores unknown fields.
func fake(t *testing.T, body string) *Kubelet {
	t.Helper()
	const prelude = `#!/bin/sh
[ "$1" = --version ] && { echo "Kubernetes v1.36.3"; exit; }
stage=2
for a in "$@"; do case "$a" in
--config=*) file="${a#--config=}"; config=$(cat "$file");;
--config-dir=*) dropins=$(cat "${a#--config-dir=}"/*.conf);;
--root-dir=*) root="${a#--root-dir=}";;
--allowed-unsafe-sysctls=*) sysctl="${a##*[=,]}";;
--exit-on-lock-contention) stage=1;;
esac; done
log() { echo "I1121 07:10:36.358684   21610 server.go:72] $1" >&2; }
end() { echo "E1121 07:10:36.358684   21610 run.go:72] \"command failed\" err=\"$1\"" >&2; exit 1; }
endpoint=$(echo "$config" | sed -n 's/.*"containerRuntimeEndpoint":"\([^"]*\)".*/\1/p')
dumped=
quiet() { dumped=yes; }
dump() {
  quiet
  log '"KubeletConfiguration" configuration=<'
  printf '\t{"Authentication":{},"Authorization":{},"ContainerRuntimeEndpoint":"%s","HealthzPort":10248,%s\n >\n' "${endpoint:-unix:///run/runtime.sock}" "${1#"{"}" >&2
}
accept() {
  [ -n "$dumped" ] || dump '{"MaxPods": 110}'
  [ $stage = 1 ] && end "failed to run Kubelet: cannot exit on lock file contention: no lock file specified"
  end "failed to run Kubelet: failed to create kubelet: the sysctls \\\"$sysctl\\\" are not known to be namespaced"
}
case "$config$LENIENT" in *evenkeelUnknownField*lenient) ;; *evenkeelUnknownField*) end "strict decoding error: unknown field";; esac
`
	path := filepath.Join(t.TempDir(), "kubelet")
	write(t, path, prelude+body+"\n", 0o755)

	return assert.Value(ParseKubelet([]string{path}))(t)
}

// fakeWithLocal returns a fake kubelet with a local configuration and flags.
func fakeWithLocal(t *testing.T, body, local string, flags ...string) *Kubelet {
	t.Helper()
	file := filepath.Join(tree(t, map[string]string{"local": local}), "local")
	return assert.Value(ParseKubelet(slices.Concat([]string{fake(t, body).Path, "--config=" + file}, flags)))(t)
}

// dryRunner returns a DryRunner and checks that its scratch directory is empty
// when the test ends.
func dryRunner(t *testing.T, k *Kubelet) *DryRunner {
	t.Helper()
	return NewDryRunner(k, scratchDir(t), slogDiscard())
}

// scratchDir returns a scratch directory that must be empty when the test ends.
func scratchDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "scratch")
	t.Cleanup(func() {
		left, _ := os.ReadDir(dir)
		assert.That(t, len(left) == 0, "a dry run left %v in its scratch directory", left)
	})

	return dir
}

// verdictTest is the body of a fake component, and the verdict.
type verdictTest struct {
	name, body string
	outcome    Outcome
	stage      int
	message    string
}

func checkVerdict(t *testing.T, got Verdict, outcome Outcome, stage int, message string, about ...any) {
	t.Helper()
	words := func(v Verdict) string { return fmt.Sprintf("%s at stage %d: %s", v.Outcome, v.Stage, v.Message) }
	assert.Equal(t, words(got), words(Verdict{Outcome: outcome, Stage: stage, Message: message}), about...)
}

func TestAKubeletThatCannotRunGivesNoVerdict(t *testing.T) {
	path := filepath.Join(t.TempDir(), "garbage")
	write(t, path, "garbage", 0o755)
	want := "the dry run does not work with this kubelet: the dry run of the kubelet: " +
		"it cannot be started: fork/exec " + path + ": exec format error"
	h := dryRunner(t, assert.Value(ParseKubelet([]string{path}))(t))
	checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte("x")}, ""), CouldNotTell, 0, want)
	checkVerdict(t, h.CheckLocal(context.Background(), ""), CouldNotTell, 0, want)
	assert.Error(t, assert.Err(h.probe(context.Background())), want, "probe")
}

func TestVerdictsOnCandidatesWithAFakeKubelet(t *testing.T) {
	const notPass = " (but the local configuration does not pass the dry run either: "
	for _, tt := range []verdictTest{
		{"rejected in stage 1 only", `case "$config" in CANDIDATE) end "no good";; esac; accept`, Rejected, 1, "no good"},
		{"words of a kubelet to come", `case "$config" in CANDIDATE) echo "something new"; exit 7;; esac; accept`, Rejected, 1, "something new"},
		{"no output at all", `case "$config" in CANDIDATE) exit 7;; esac; accept`, Rejected, 1, "the kubelet ended with exit code 7 and no message"},
		{"the right words but exit 0", `case "$config" in CANDIDATE) (accept); exit 0;; esac; accept`, Rejected, 1,
			"cannot exit on lock file contention: no lock file specified"},
		{"local fails too", `case "$config" in *no-runtime*) accept;; CANDIDATE) end "no good";; esac; end "bad flags"`, CouldNotTell, 1,
			"no good" + notPass + "bad flags)"},
		{"stage 2 does not work on this node", `case "$stage" in 2) end "swap is on";; esac; accept`, CouldNotTell, 1,
			"correct the node's local configuration, and this one is judged again: the kubelet would not start with the local one: swap is on"},
		{"stage 2 knows no runtime", `case "$stage" in 2) end "failed to run Kubelet: validate service connection: validate CRI v1 runtime API for endpoint x: gone";; esac; accept`, Accepted, 1,
			"stage 2 of the dry run was not used: the local configuration does not pass it: validate service connection: validate CRI v1 runtime API for endpoint x: gone"},
		{"a crash, and of local too", `case "$config" in *no-runtime*) accept;; esac; kill -SEGV $$`, CouldNotTell, 1, "the dry run of the kubelet: it died: signal: segmentation fault"},
	} {
		v := dryRunner(t, fake(t, tt.body)).Check(context.Background(), Candidate{Data: []byte("CANDIDATE")}, "")
		checkVerdict(t, v, tt.outcome, tt.stage, tt.message, tt.name)
		assert.That(t, !v.CandidateOnly, "%s: it is the candidate's alone", tt.name)
	}
}

func TestStage2RejectsOnlyIfTheLocalConfigurationStillPasses(t *testing.T) {
	// The local configuration passed stage 2 once; from then on the switch file
	// decides.
	for _, tt := range []verdictTest{
		{"local still passes", "accept", Rejected, 2, "no good"},
		{"local fails now", `end "swap is on"`, CouldNotTell, 2, "no good (but the local configuration does not pass the dry run either: swap is on)"},
		{"the runtime is gone now", `end "failed to run Kubelet: validate service connection: validate CRI v1 runtime API for endpoint x"`, Accepted, 1,
			"stage 2 of the dry run was not used: validate service connection: validate CRI v1 runtime API for endpoint x"},
		{"local fails now, with words of a runtime", `end "failed to run Kubelet: bad value: validate service connection: validate CRI v1 runtime API for endpoint x"`, CouldNotTell, 2,
			"no good (but the local configuration does not pass the dry run either: bad value: validate service connection: validate CRI v1 runtime API for endpoint x)"},
	} {
		now := filepath.Join(t.TempDir(), "now")
		write(t, now, "accept", 0o600)
		h := dryRunner(t, fake(t, `case "$stage$config" in 2BAD) end "no good";; 2GOOD) accept;; 2) . `+now+`;; esac; accept`))
		checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte("GOOD")}, ""), Accepted, 2, "", tt.name)
		write(t, now, tt.body, 0o600)
		checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte("BAD")}, ""), tt.outcome, tt.stage, tt.message, tt.name)
	}
}

func TestARuntimeOutageRejectsNoCandidate(t *testing.T) {
	const gone = `end 'failed to run Kubelet: rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix /s: connect: connection refused\"'`
	const message = `rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix /s: connect: connection refused"`
	for _, tt := range []struct {
		name, first, second string // how the candidate's runs of stage 2 end; local always passes
		outcome             Outcome
		stage               int
		message             string
		alone               bool
	}{
		{"it is over for the second run", gone, "accept", Accepted, 2, "", false},
		{"of any kind", `end "swap is on"`, "accept", Accepted, 2, "", false},
		{"it comes for the second run", `end "no good"`, gone, CouldNotTell, 2, message, true},
		{"it is there both times", gone, gone, CouldNotTell, 2, message, true},
		{"it hid what is wrong", gone, `end "no good"`, CouldNotTell, 2, "no good", false},
		{"there is none", `end "no good"`, `end "no good"`, Rejected, 2, "no good", false},
	} {
		again := filepath.Join(t.TempDir(), "again")
		h := dryRunner(t, fake(t, `case "$stage$config" in 2BAD) [ -e `+again+` ] && { `+tt.second+`; }; touch `+again+`; `+tt.first+`;; esac; accept`))
		v := h.Check(context.Background(), Candidate{Data: []byte("BAD")}, "")
		checkVerdict(t, v, tt.outcome, tt.stage, tt.message, tt.name)
		assert.That(t, v.CandidateOnly == tt.alone, "%s: CandidateOnly is %v", tt.name, v.CandidateOnly)
	}
}

func TestAKubeletThatIgnoresTheExitFlagIsKilled(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	h := dryRunner(t, fake(t, `sleep 600 & echo $$ $! >`+pids+`; log '"Standalone mode, no API client"'; wait`))
	const want = `the dry run does not work with this kubelet: the dry run of the kubelet: it continued past the end of the dry run ("Standalone mode, no API client") and was killed`
	checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte("x")}, ""), CouldNotTell, 0, want) // a dry run that times out has other words
	mustBeGone(t, pids)
}

func TestAKubeletThatContinuesAfterStage2IsKilledAndNotUsedAgain(t *testing.T) {
	dir := t.TempDir()
	pids, count := filepath.Join(dir, "pids"), filepath.Join(dir, "count")
	h := dryRunner(t, fake(t, `[ $stage = 1 ] && accept; echo x >>`+count+`; sleep 600 & echo $$ $! >`+pids+`; log '"No API server defined - no node status update will be sent" path="/x"'; wait`))
	for _, want := range []string{
		`stage 2 of the dry run was not used: the local configuration does not pass it: the dry run of the kubelet: it continued past the end of the dry run ("No API server defined - no node status update will be sent") and was killed`,
		`stage 2 of the dry run was not used: this kubelet continues past the end of stage 2`,
	} {
		v := h.Check(context.Background(), Candidate{Data: []byte("x")}, "")
		checkVerdict(t, v, Accepted, 1, want)
		assert.That(t, len(v.Limits) == 1 && v.Limits[0].Reason == LimitValidationOnly, "the limits are %v", v.Limits)
	}

	runs, _ := os.ReadFile(count)
	assert.That(t, strings.Count(string(runs), "x") == 1, "stage 2 ran %d times", strings.Count(string(runs), "x"))
	mustBeGone(t, pids)
}

func TestAKubeletThatIgnoresUnknownFieldsGivesNoVerdict(t *testing.T) {
	t.Setenv("LENIENT", "lenient")
	v := dryRunner(t, fake(t, "accept")).Check(context.Background(), Candidate{Data: []byte("x")}, "")
	checkVerdict(t, v, CouldNotTell, 0,
		"cannot find out how this kubelet reports its configuration: it ignores unknown fields, so a typo would have no effect and not be reported")
}

func TestAKubeletThatHangsIsKilledWithItsChildren(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	h := dryRunner(t, fake(t, `case "$config" in HANG) sleep 600 & echo $$ $! >`+pids+`; wait;; esac; accept`))
	h.Deadline = 500 * time.Millisecond
	checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte("HANG")}, ""), CouldNotTell, 1,
		"the dry run of the kubelet: it did not exit within 500ms and was killed")
	mustBeGone(t, pids)
}

func TestTheLocalConfigurationIsRejectedOnlyIfAnEmptyOneIsAccepted(t *testing.T) {
	broken, initFile := filepath.Join(t.TempDir(), "broken"), filepath.Join(t.TempDir(), "kubelet")
	h := dryRunner(t, fake(t, `case "$config" in *no-runtime*) [ -e `+broken+` ] && end "nothing works";; INIT) end "no good";; esac; quiet; accept`))
	checkVerdict(t, h.CheckLocal(context.Background(), ""), Accepted, 1, "")
	write(t, initFile, "GOOD", 0o600)
	checkVerdict(t, h.CheckLocal(context.Background(), initFile), Accepted, 1, "")
	write(t, initFile, "INIT", 0o600)
	checkVerdict(t, h.CheckLocal(context.Background(), initFile), Rejected, 1, "no good")
	write(t, broken, "", 0o600)
	checkVerdict(t, h.CheckLocal(context.Background(), initFile), CouldNotTell, 1,
		"no good (but an empty configuration does not pass the dry run either: nothing works)")
}

// mustBeGone waits until the processes with the IDs in a file have exited;
// zombies count as exited.
func mustBeGone(t *testing.T, pids string) {
	t.Helper()
	text := assert.Value(os.ReadFile(pids))(t)
	for pid := range strings.FieldsSeq(string(text)) {
		assert.Eventually(t, "process "+pid+" is gone", func() bool {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	}
}

// TestMain also runs as the process that TestADryRunDiesWithItsParent kills.
func TestMain(m *testing.M) {
	if kubelet := os.Getenv("EVENKEEL_TEST_KUBELET"); kubelet != "" {
		h := NewDryRunner(&Kubelet{Path: kubelet}, os.Getenv("EVENKEEL_TEST_SCRATCH"), slogDiscard())
		_, _ = h.probe(context.Background())
		return
	}

	code := m.Run()
	if cluster != nil {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}

	os.Exit(code)
}

func TestADryRunDiesWithItsParent(t *testing.T) {
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	k := fake(t, `echo $$ >`+pids+`; exec sleep 600`)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EVENKEEL_TEST_KUBELET="+k.Path, "EVENKEEL_TEST_SCRATCH="+filepath.Join(dir, "scratch"))
	assert.NoError(t, cmd.Start())
	assert.Eventually(t, "the fake kubelet runs", func() bool { text, _ := os.ReadFile(pids); return len(text) > 0 })
	assert.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	mustBeGone(t, pids)
}

func slogDiscard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Only the local configuration can show that a binary continues: the candidate
// gets no verdict, and stage 2 stays in use.
func TestACandidateThatSeemsToContinueOrCrashesChangesNothingForOthers(t *testing.T) {
	const overrun = `log '"Started kubelet"'; exec sleep 600`
	const killed = `it continued past the end of the dry run ("Started kubelet") and was killed`
	const crashed = "it died: signal: segmentation fault"
	const noStage2 = "stage 2 of the dry run was not used: "
	for _, tt := range []struct {
		name, body, message string
		stage               int
		alone               bool   // the local configuration passes, and nobody else ended the run
		next                string // why stage 2 does not run for another candidate; "" if it does
	}{
		{"in stage 1", `case "$stage$config" in 1BAD) ` + overrun + `;; esac; accept`, killed, 1, true, ""},
		{"in stage 2", `case "$stage$config" in 2BAD) ` + overrun + `;; esac; accept`, killed, 2, true, ""},
		{"in the second run of stage 2", `case "$stage$config" in 2BAD) [ -e AGAIN ] && { ` + overrun + `; }; touch AGAIN; end "no good";; esac; accept`, killed, 2, true, ""},
		{"and local continues too, from now on", `case "$stage$config" in 2BAD) touch AGAIN; ` + overrun + `;; 2) [ -e AGAIN ] && { ` + overrun + `; };; esac; accept`, killed, 2, false,
			noStage2 + "this kubelet continues past the end of stage 2"},
		{"and local fails otherwise", `case "$stage$config" in 2BAD) touch AGAIN; ` + overrun + `;; 2) [ -e AGAIN ] && end "no good";; esac; accept`, killed, 2, false, ""},
		{"a crash in stage 1", `case "$stage$config" in 1BAD) kill -SEGV $$;; esac; accept`, crashed, 1, true, ""},
		{"a crash in stage 2", `case "$stage$config" in 2BAD) kill -SEGV $$;; esac; accept`, crashed, 2, true, ""},
		{"a person or the OOM killer ends it", `case "$stage$config" in 1BAD) kill -9 $$;; esac; accept`, "it died: signal: killed", 1, false, ""},
		{"a person or the OOM killer ends it in stage 2", `case "$stage$config" in 2BAD) kill -9 $$;; esac; accept`, "it died: signal: killed", 2, false, ""},
	} {
		h := dryRunner(t, fake(t, strings.ReplaceAll(tt.body, "AGAIN", filepath.Join(t.TempDir(), "again"))))
		checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte("GOOD")}, ""), Accepted, 2, "", tt.name)
		v := h.Check(context.Background(), Candidate{Data: []byte("BAD")}, "")
		checkVerdict(t, v, CouldNotTell, tt.stage, "the dry run of the kubelet: "+tt.message, tt.name)
		assert.Equal(t, v.CandidateOnly, tt.alone, tt.name, "CandidateOnly is")
		want := 2
		if tt.next != "" {
			want = 1
		}

		checkVerdict(t, h.Check(context.Background(), Candidate{Data: []byte("GOOD")}, ""), Accepted, want, tt.next, tt.name)
	}
}

func TestAnUnreadableDumpIsNotARejection(t *testing.T) {
	k := fake(t, `printf 'I1121 07:10:36.358684   21610 server.go:301] "KubeletConfiguration" configuration=<\n\t{"MaxPods":\n >\n' >&2; quiet; accept`)
	k.flags = []flag{{name: "max-pods", value: "5", tokens: []string{"--max-pods=5"}}}
	v := dryRunner(t, k).Check(context.Background(), Candidate{Data: []byte("maxPods: 1")}, "")
	checkVerdict(t, v, Accepted, 1, "")
	want := "[cannot tell which fields are overridden by flags: the kubelet did not print its configuration" +
		" the effective local configuration is unknown: the kubelet did not print it]"
	assert.That(t, v.Effective == nil && v.Local == nil && v.Origins == nil && fmt.Sprint(v.Warnings) == want, "effective %v, warnings %q", v.Effective, v.Warnings)
}
