// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func newSession(t *testing.T) *Session {
	t.Helper()
	s := assert.Value(NewSession(t.TempDir(), t.TempDir(), "PATH="+os.Getenv("PATH"), "QUOTED=it's $HOME"))(t)
	return s
}

func (s *Session) types(t *testing.T, text, printed string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, got, err := s.Run(ctx, text)
	assert.That(t, err == nil && got == code && out == printed,
		"%s: exit code %d, printed %q, error %v; want %d and %q", text, got, out, err, code, printed)
}

func TestASessionRemembersWhatCommandsLeave(t *testing.T) {
	s := newSession(t)
	s.types(t, `echo "$QUOTED"`, "it's $HOME\n", 0)
	s.types(t, "mkdir d; cd d; a='x  y'; export B=\"1\n2\"", "", 0)
	s.types(t, `basename $PWD; echo "$a-$B"`, "d\nx  y-1\n2\n", 0)
	s.types(t, "a=z; exit 7", "", 7)
	s.types(t, "echo $a >&2; false   # a comment", "z\n", 1)
	s.types(t, "test -t 0 && read answer && echo $answer", "y\n", 0)
}

func TestACommandThatDoesNotEndIsEnded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, _, err := newSession(t).Run(ctx, "sleep 1000")
	assert.That(t, err != nil && strings.Contains(err.Error(), "it has not ended"), "the error is %v", err)
}

func TestACommandThatKeepsRunningEndsWithThePageOrForItsSuccessor(t *testing.T) {
	s := newSession(t)
	const server = "cat > server <<'EOF'\n#!/bin/sh\ntrap \"echo $1 ended >>ends; exit\" TERM\necho ready\nwhile :; do sleep 0.05; done\nEOF\nchmod +x server"
	s.types(t, server, "", 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, text := range []string{"./server 1   # the first", "./server 2"} {
		assert.NoError(t, s.Keep(ctx, text, []string{"ready"}))
	}
	s.types(t, "cat ends", "1 ended\n", 0)
	assert.OK(t, s.Close())
	s.types(t, "cat ends", "1 ended\n2 ended\n", 0)
	assert.ErrorHas(t, s.Keep(ctx, "false", nil), "it should keep running, and has ended")
	assert.NoError(t, s.Keep(ctx, "./server 3", []string{"open"}))
	assert.ErrorHas(t, s.Close(), "./server: the page says that it prints")
	if err := s.Keep(ctx, "sh -c 'echo once; read line <fifo'", nil); err == nil || !strings.Contains(err.Error(), "it should keep running") {
		// It has printed something before it ended.
		<-s.kept[0].done
		if err = s.Close(); err == nil || !strings.Contains(err.Error(), "should have kept running, and has ended: once") {
			t.Errorf("the error is %v", err)
		}
	}
}
