// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/internal/listwatch"
)

// Passing reports whether an error may go away by itself, such as that of an API server that restarts.
func Passing(err error) bool {
	var unreachable *url.Error
	var network *net.OpError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		code := status.Status().Code
		return code >= 500 || code == 429 || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	case errors.Is(err, listwatch.ErrSilent), errors.Is(err, listwatch.ErrEnded):
		return true
	case errors.Is(err, context.Canceled):
		return false
	}
	text := err.Error()
	return errors.As(err, &unreachable) || errors.As(err, &network) || strings.Contains(text, "stream error: ") ||
		strings.Contains(text, "http2: ")
}
