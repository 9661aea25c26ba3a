// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/listwatch"
	"github.com/evenkeel/evenkeel/internal/printable"
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

// missing reports whether an object does not exist. A 404 without the API server's Status means that the address does not.
func missing(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// notFound is the error for an unknown rollout: it lists the existing ones.
func notFound(ctx context.Context, c client.Reader, name string) error {
	names, err := RolloutNames(ctx, c)
	if err != nil {
		return fmt.Errorf("rollout %q does not exist", name)
	}
	if len(names) == 0 {
		return fmt.Errorf("rollout %q does not exist, and there are no others: create one with: kubectl evenkeel push NAME -f FILE --selector "+
			"LABELS", name)
	}
	return fmt.Errorf("rollout %q does not exist; existing rollouts: %s", name, printable.Few(names))
}
