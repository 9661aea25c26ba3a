// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/internal/operator/steer"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAnErrorAfterWhichTheWriteMayHaveTakenEffectSaysWhatToDo(t *testing.T) {
	const words = "the assignment may have been written: run the command again, which follows it if it was"
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&url.Error{Op: "Patch", URL: "https://api", Err: syscall.ECONNRESET}, true},
		{apierrors.NewInternalError(errors.New("etcd")), true},
		{context.Canceled, true},
		{fmt.Errorf("NodeConfig a: %w", steer.ErrChanged), false},
		{apierrors.NewBadRequest("no"), false},
	} {
		got := maybeWritten(tt.err)
		assert.That(t, (got != nil && strings.Contains(got.Error(), words)) == tt.want && errors.Is(got, tt.err), "%v becomes %v", tt.err, got)
	}
}
