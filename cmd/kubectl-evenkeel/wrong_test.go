// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// The message of each wrong use in testdata/wrong says what happened, why, and
// what to do next.
func TestWrongUsesAreExplained(t *testing.T) {
	taken := assert.Value(net.Listen("tcp4", "127.0.0.1:0"))(t)
	t.Cleanup(func() {
		assert.OK(t, taken.Close())
	})
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	runScripts(t, filepath.Join("testdata", "wrong"), func(env *testscript.Env) {
		env.Setenv("TAKEN", port)
		env.Setenv("SERVER", cluster.AdminConfig().Host)
	})
}

var (
	// raw are words of libraries, which say nothing to users.
	raw = regexp.MustCompile(`unknown reason|invalid character|dial tcp|deadline exceeded|x509:|serializer|failed to get server groups|prevented the request|requested resource|unexpected end|no such file|\bEOF\b`)
	// next are the words with which messages say what to do.
	next = regexp.MustCompile(`(?i)\b(use|see|correct|choose|must|omit|needs?|log in|list them|list the nodes|check|get a new|existing|available|did you mean|create|install|takes|an administrator can|ask|kubectl [a-z]+)\b`)
)

// wrong CODE args...: runs the command line, which must end with this code, and
// with a message that says what to do.
func wrong(ts *testscript.TestScript, neg bool, args []string) {
	exits(ts, neg, append([]string{args[0], "kubectl-evenkeel"}, args[1:]...))
	text := ts.ReadFile("stderr")
	if args[0] == "0" {
		return
	}
	if !strings.Contains("\n"+text, "\nerror: ") || !next.MatchString(text) {
		ts.Fatalf("the message does not say what is wrong and what to do: %s", text)
	}
	if words := raw.FindString(text); words != "" || len(text) > 1500 {
		ts.Fatalf("the message has the raw words %q, or is too long: %s", words, text)
	}
}

// huge FILE: creates a file that is larger than any configuration.
func huge(ts *testscript.TestScript, args []string) {
	text := fmt.Appendf(nil, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n# %s\n", bytes.Repeat([]byte("x"), 2<<20))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), text, 0o600))
}
