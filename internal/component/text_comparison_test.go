package component

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// protectedDryRunner returns a DryRunner with the default protection.
func protectedDryRunner(t *testing.T, k *Kubelet) *DryRunner {
	h := dryRunner(t, k)
	h.Protected = payload.DefaultProtection()
	return h
}

func wantIncomparable(t *testing.T, h *DryRunner, v Verdict, message string) {
	t.Helper()
	got, compared := v.CheckProtected(h.Protected)
	if v.Outcome != Accepted || compared || !strings.HasPrefix(got, message) {
		t.Errorf("%s, compared %t: %s; %s", v.Outcome, compared, v.Message, got)
	}
}

func TestNothingIsComparedIfTheLocalConfigurationIsRejected(t *testing.T) {
	h := protectedDryRunner(t, fakeWithLocal(t, `case "$config" in *LOCAL*) end "no good";; esac; `+printing+"accept", "maxPods: 1 # LOCAL"))
	v := h.Check(context.Background(), Candidate{Data: []byte("readOnlyPort: 0")}, "")
	wantIncomparable(t, h, v, "the kubelet did not print the effective local configuration")
}

func TestNothingIsComparedIfTheLocalConfigurationIsUnreadable(t *testing.T) {
	h := protectedDryRunner(t, fakeWithLocal(t, printing+"accept", "{: [ # LOCAL"))
	v := h.Check(context.Background(), Candidate{Data: []byte(`{"authentication": {"x509": {"clientCAFile": "/ca"}}}`)}, "")
	wantIncomparable(t, h, v, "the kubelet did not print the effective configuration, and protected fields cannot be compared by text: ")
}

func TestNothingIsComparedIfTheNodeHasOnlyDropIns(t *testing.T) {
	k := fake(t, "accept")
	k.ConfigDir = tree(t, map[string]string{"10.conf": "maxPods: 1"})
	h := protectedDryRunner(t, k)
	v := h.Check(context.Background(), Candidate{Data: []byte("maxPods: 2")}, "")
	wantIncomparable(t, h, v, "the kubelet did not print the effective configuration, and protected fields cannot be compared by text: "+noLocalFile)
}

func TestAClientCAFileIsTheSameHoweverItsPathIsWritten(t *testing.T) {
	for _, local := range []string{"ca.crt", "DIR//ca.crt", "DIR/sub/../ca.crt"} {
		k := fake(t, printing+"accept")
		dir := t.TempDir()
		k.Config = filepath.Join(dir, "local")
		write(t, k.Config, `{"maxPods": 1, "authentication": {"x509": {"clientCAFile": "`+strings.ReplaceAll(local, "DIR", dir)+`"}}} # LOCAL`, 0o600)
		v := protectedDryRunner(t, k).Check(context.Background(), Candidate{Data: []byte(`{"authentication": {"x509": {"clientCAFile": "` + dir + `/ca.crt"}}}`)}, "")
		checkVerdict(t, v, Accepted, 2, "")
	}
}

func TestAMissingRuntimeSocketIsNotARejection(t *testing.T) {
	h := dryRunner(t, fake(t, printing+"accept"))
	v := h.Check(context.Background(), Candidate{Data: []byte(`{"containerRuntimeEndpoint":"unix:///nonexistent.sock"}`)}, "")
	checkVerdict(t, v, CouldNotTell, 2, "containerRuntimeEndpoint: stat /nonexistent.sock: no such file or directory")
}

func TestAKubeletWithoutADumpUsesTheRuntimeOfItsFlagInStage2(t *testing.T) {
	args := filepath.Join(t.TempDir(), "args")
	k := fakeWithLocal(t, `[ $stage = 2 ] && echo "$*" >>`+args+`; accept`, "maxPods: 1 # LOCAL")
	k.flags = []flag{{name: runtimeFlag, value: "unix:///run/crio/crio.sock", tokens: []string{"--" + runtimeFlag + "=unix:///run/crio/crio.sock"}}}
	v := dryRunner(t, k).Check(context.Background(), Candidate{Data: []byte("containerRuntimeEndpoint: unix:///evil")}, "")
	checkVerdict(t, v, Accepted, 2, "")
	text, err := read(args)
	if err != nil || strings.Count(text, "--"+runtimeFlag+"=unix:///run/crio/crio.sock") != 2 || strings.Count(text, runtimeFlag) != 2 {
		t.Errorf("stage 2 ran with %v:\n%s", err, text)
	}
}

func TestATruncatedDumpIsIgnored(t *testing.T) {
	out := &outputReader{onOverrun: func(string) {}, holdsDump: mayBeDump}
	_, _ = out.Write([]byte("I1121 07:10:36.358684   21610 server.go:257] \"m\" config=<\n\t" + strings.ReplaceAll(apiDump, "\n", "\n\t")))
	line := []byte("\n\tx: " + strings.Repeat("x", 1<<20))
	for range 17 {
		_, _ = out.Write(line)
	}
	_, _ = out.Write([]byte("\n\treadOnlyPort: 10255\n >\n"))
	if !out.truncated {
		t.Error("it is not told that it was cut")
	}
	if e, _ := findDump([]string{apiDump + "x: " + strings.Repeat("x", maxDump)}, anchorFields); e != nil {
		t.Error("a value that is too long was decoded")
	}
}
