// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

func TestTheCommandGetsThePoolAndDecidesTheExitCode(t *testing.T) {
	code, err := run(t.Context(), []string{"sh", "-c", "test -S $" + localcluster.PoolEnv + " && exit 3"})
	assert.That(t, code == 3 && err == nil, "got exit code %d and error %v, want 3 and none", code, err)
}

func TestAnInterruptEndsTheCommandAndWhatItStarted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "group")
	go func() {
		defer interrupt()
		for t.Context().Err() == nil {
			if _, err := os.Stat(file); err == nil {
				return
			}

			<-time.After(10 * time.Millisecond) // poll interval
		}
	}()
	code, err := run(ctx, []string{"sh", "-c", "sleep 600 & echo $$ >" + file + ".new; mv " + file + ".new " + file + "; wait; true"})
	assert.That(t, code == 0 && err != nil, "got exit code %d and error %v, want an error", code, err)
	text := assert.Value(os.ReadFile(file))(t)
	group := assert.Value(strconv.Atoi(strings.TrimSpace(string(text))))(t)
	for deadline := time.Now().Add(10 * time.Second); !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH); <-time.After(10 * time.Millisecond) {
		assert.Must(t, !time.Now().After(deadline), "a process of the command still runs")
	}
}
