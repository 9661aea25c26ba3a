package component

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// protectedDryRunner returns a DryRunner with the default protection.
func protectedDryRunner(t *testing.T, k *Kubelet) *DryRunner {
	h := dryRunner(t, k)
	h.Protected = payload.DefaultProtection()
	return h
}

func TestNothingIsComparedWithoutALocalConfigurationToCompareWith(t *testing.T) {
	onlyDropIns := fake(t, "accept")
	onlyDropIns.ConfigDir = tree(t, map[string]string{"10.conf": "maxPods: 1"})
	const byText = "the kubelet did not print the effective configuration, and protected fields cannot be compared by text: "
	for _, tt := range []struct {
		k             *Kubelet
		data, message string
	}{
		{fakeWithLocal(t, `case "$config" in *LOCAL*) end "no good";; esac; `+printing+"accept", "maxPods: 1 # LOCAL"), "readOnlyPort: 0", "the kubelet did not print the effective local configuration"},
		{fakeWithLocal(t, printing+"accept", "{: [ # LOCAL"), `{"authentication": {"x509": {"clientCAFile": "/ca"}}}`, byText},
		{onlyDropIns, "maxPods: 2", byText + noLocalFile},
	} {
		h := protectedDryRunner(t, tt.k)
		v := h.Check(context.Background(), Candidate{Data: []byte(tt.data)}, "")
		got, compared := v.CheckProtected(h.Protected)
		assert.That(t, v.Outcome == Accepted && !compared && strings.HasPrefix(got, tt.message), "%s, compared %t: %s; %s", v.Outcome, compared, v.Message, got)
	}
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
	assert.That(t, err == nil && strings.Count(text, "--"+runtimeFlag+"=unix:///run/crio/crio.sock") == 2 && strings.Count(text, runtimeFlag) == 2, "stage 2 ran with %v:\n%s", err, text)
}

func TestATruncatedDumpIsIgnored(t *testing.T) {
	out := &outputReader{onOverrun: func(string) {}, holdsDump: mayBeDump}
	_, _ = out.Write([]byte("I1121 07:10:36.358684   21610 server.go:257] \"m\" config=<\n\t" + strings.ReplaceAll(apiDump, "\n", "\n\t")))
	line := []byte("\n\tx: " + strings.Repeat("x", 1<<20))
	for range 17 {
		_, _ = out.Write(line)
	}
	_, _ = out.Write([]byte("\n\treadOnlyPort: 10255\n >\n"))
	assert.That(t, out.truncated, "it is not told that it was cut")
	e, _ := findDump([]string{apiDump + "x: " + strings.Repeat("x", maxDump)}, anchorFields)
	assert.That(t, e == nil, "a value that is too long was decoded")
}
