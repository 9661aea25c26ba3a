// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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

func TestNothingIsComparedWithoutBothEffectiveConfigurations(t *testing.T) {
	const notPrinted = "the kubelet did not print the effective configuration, so it cannot be compared with the local configuration"
	for _, tt := range []struct{ body, message string }{
		{`case "$config" in *LOCAL*) end "no good";; esac; ` + printing + "accept", "the kubelet did not print the effective local configuration"},
		{`case "$config" in *LOCAL*) quiet;; esac; accept`, "the kubelet did not print the effective local configuration"},
		{`case "$config" in *readOnlyPort*) quiet;; esac; accept`, notPrinted},
		{"quiet; accept", notPrinted},
	} {
		for _, protected := range []payload.Protection{payload.DefaultProtection(), {}} {
			h := dryRunner(t, fakeWithLocal(t, tt.body, "maxPods: 1 # LOCAL"))
			h.Protected = protected
			v := h.Check(context.Background(), Candidate{Data: []byte("readOnlyPort: 0")}, "")
			got, compared := v.CheckProtected(protected)
			free := protected.Empty() && tt.message != notPrinted // it differs from nothing that is protected
			assert.That(t, v.Outcome == Accepted && v.Stage == 1 && compared == free && strings.HasPrefix(got, tt.message) != free,
				"%s, compared %t: %s; %s", v.Outcome, compared, v.Message, got)
		}
	}
}

func TestAClientCAFileIsNotUsedIfTheLocalConfigurationCannotBeRead(t *testing.T) {
	h := protectedDryRunner(t, fakeWithLocal(t, printing+"accept", "{: [ # LOCAL"))
	v := h.Check(context.Background(), Candidate{Data: []byte(`{"authentication": {"x509": {"clientCAFile": "/ca"}}}`)}, "")
	words, compared := v.CheckProtected(h.Protected)
	assert.That(t, !compared && v.Effective == nil && strings.HasPrefix(words, "the client CA file cannot be compared with that of the local configuration: "),
		"%s: %q, compared %t", v.Outcome, words, compared)
}

func TestTheHealthEndpointOfAKubeletThatPrintsNothingIsThatOfItsFilesAndFlags(t *testing.T) {
	for flags, port := range map[string]string{"": "1234", "--healthz-port=4321": "4321"} {
		k := fakeWithLocal(t, "quiet; accept", "{healthzPort: 1234, healthzBindAddress: 127.0.0.9} # LOCAL", strings.Fields(flags)...)
		v := dryRunner(t, k).CheckLocal(context.Background(), "")
		assert.That(t, v.Effective == nil && len(v.Limits) == 1 && v.Limits[0].Reason == LimitNotComparable, "%+v", v)
		assert.Equal(t, k.HealthzURL(v.EffectiveOrAssumed()), "http://127.0.0.9:"+port+"/healthz")
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
