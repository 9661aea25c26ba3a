// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel/evenkeel/internal/listwatch"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestEqualErrorsHaveEqualDescriptions(t *testing.T) {
	for said, want := range map[string]string{
		"read tcp 10.0.0.1:54321->10.0.0.2:6443: read: connection reset by peer":                  "x cannot be read: read tcp 10.0.0.2:6443: read: connection reset by peer; retrying",
		"read tcp [fd00::1%eth0]:54321->[fd00::2]:6443: i/o timeout":                              "x cannot be read: read tcp [fd00::2]:6443: i/o timeout; retrying",
		"dial tcp: lookup api on 10.0.0.10:53: read udp 10.1.1.1:4321->10.0.0.10:53: i/o timeout": "x cannot be read: dial tcp: lookup api on 10.0.0.10:53: read udp 10.0.0.10:53: i/o timeout; retrying",
	} {
		assert.Equal(t, describeError(errors.New(said), "x", ""), want)
	}
}

// Everything but missing credentials and rights may be an outage: the running
// configuration is not doubted.
func TestOnlyMissingRightsAreAnAnswerAndOnlyOutagesAreSilence(t *testing.T) {
	maps := schema.GroupResource{Resource: "configmaps"}
	for _, c := range []struct {
		kind   trial.IntentKind
		silent bool
		all    []error
	}{
		{trial.Invalid, false, []error{apierrors.NewForbidden(maps, "a", errors.New("no")), apierrors.NewUnauthorized("no")}},
		{trial.Unanswered, false, []error{
			apierrors.NewBadRequest("no"), apierrors.NewConflict(maps, "a", errors.New("no")), apierrors.NewResourceExpired("no"),
			apierrors.NewNotFound(maps, ""), // another server answers
		}},
		{trial.Unanswered, true, []error{
			errNoAnswer, listwatch.ErrEnded, &kubeconfigError{"kubeconfig", fs.ErrNotExist}, x509.UnknownAuthorityError{}, context.DeadlineExceeded,
			apierrors.NewTooManyRequests("later", 1), apierrors.NewInternalError(errors.New("etcd")), apierrors.NewServiceUnavailable("starting"),
			apierrors.NewTimeoutError("slow", 1),
		}},
	} {
		for _, err := range c.all {
			assert.Equal(t, intentAfter(fmt.Errorf("get: %w", err)), c.kind, err)
			assert.Equal(t, silent(fmt.Errorf("get: %w", err)), c.silent, err)
		}
	}
}
