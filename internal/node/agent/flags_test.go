// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestAgentsAnswerRequestsAboutFlags(t *testing.T) {
	inWorld(t, func(w *world) {
		asks := w.takesPreflights()
		ask := func(request string, describe func(context.Context) (string, error)) {
			asks.flags, asks.describe = request, describe
			signal(w.source.changed)
		}
		answered := func(want v1alpha1.FlagsAnswer) {
			t.Helper()
			w.until("the request "+want.Request+" is answered", func() bool { f := w.status().Flags; return f != nil && f.Request == want.Request })
			if diff := cmp.Diff(&want, w.status().Flags); diff != "" {
				t.Error(diff)
			}
		}
		w.start()
		w.runs("")
		disk := w.records()
		ask("1", func(context.Context) (string, error) { return "maxPods: 77\n", nil })
		answered(v1alpha1.FlagsAnswer{Request: "1", Text: "maxPods: 77\n"})
		ask("2", func(context.Context) (string, error) { return "maxPods: 7\n", errors.New("not equivalent") })
		answered(v1alpha1.FlagsAnswer{Request: "2", Text: "maxPods: 7\n", Error: "not equivalent"})

		// A request that is replaced is not answered, and nothing waits for it.
		stopped := make(chan struct{})
		ask("slow", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			close(stopped)
			return "", ctx.Err()
		})
		w.until("the old answer is gone", func() bool { return w.status().Flags == nil })
		ask("3", func(context.Context) (string, error) { return "", errors.New("could not tell") })
		<-stopped
		answered(v1alpha1.FlagsAnswer{Request: "3", Error: "could not tell"})

		ask("", nil)
		w.until("the answer is gone", func() bool { return w.status().Flags == nil })
		w.wantStarts("")
		if got := w.records(); got != disk {
			t.Errorf("the records on disk have changed from\n%s to\n%s", disk, got)
		}
	})
}
