// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestErrorsAreExplainedWithAdvice(t *testing.T) {
	rollouts := schema.GroupResource{Group: "evenkeel.dev", Resource: "nodeconfigrollouts"}
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, tt := range []struct {
		name   string
		err    error
		what   string // the first line after the context; empty: the error's own words
		next   string // in the lines after it; empty: none
		passes bool
	}{
		{"no CRD", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "evenkeel.dev", Kind: "NodeConfigRollout"}}, "the cluster does not serve evenkeel.dev/v1alpha1", "kubectl apply -f install.yaml", false},
		{"an API server that does not list the API", &meta.NoResourceMatchError{PartialResource: schema.GroupVersionResource{Group: "evenkeel.dev", Version: "v1alpha1"}}, "the cluster does not serve evenkeel.dev/v1alpha1", "overloaded", false},
		{"a broken stream", errors.New("stream error: stream ID 7; INTERNAL_ERROR; received from peer"), "the API server broke off its answer", "overloaded", true},
		{"a request whose stream broke", &url.Error{Op: "Get", URL: "https://api:6443/api", Err: errors.New("http2: client connection lost")}, "the API server broke off its answer", "overloaded", true},
		{"a CRD was deleted", apierrors.NewGenericServerResponse(404, "GET", rollouts, "", "404 page not found", 0, true),
			"the API server does not serve nodeconfigrollouts.evenkeel.dev: its CustomResourceDefinition is missing", "kubectl apply -f install.yaml", false},
		{"a wrong address", apierrors.NewGenericServerResponse(404, "GET", schema.GroupResource{}, "", "404 page not found", 0, true),
			`the answer is not from a Kubernetes API server (HTTP 404 Not Found: "404 page not found"): the address is wrong, or a proxy answers in its place`, "kubectl cluster-info", false},
		{"not logged in", apierrors.NewUnauthorized("who are you"), "the API server does not accept your credentials (401 Unauthorized): they are missing, have expired, or are of another cluster", "log in again", false},
		{"refused by admission", apierrors.NewForbidden(rollouts, "workers", errors.New("no")), "", "an admission policy or webhook of the cluster refused the request", false},
		{"an older CRD", apierrors.NewBadRequest(`strict decoding error: unknown field "spec.x"`), "", "CRDs are older than this kubectl-evenkeel (v1)", false},
		{"refused", &url.Error{Op: "Get", URL: "https://api:6443/api", Err: refused}, "the API server cannot be reached: api:6443 refuses connections, because nothing listens there", "is the API server up?", true},
		{"cut off", refused, "the API server cannot be reached: the server refuses connections, because nothing listens there", "is the API server up?", true},
		{"an unknown name", &url.Error{Op: "Get", URL: "https://api:6443/api", Err: &net.DNSError{Name: "api", Err: "no such host", IsNotFound: true}}, "the name of the API server, api, cannot be resolved", "VPN", true},
		{"no route", &url.Error{Op: "Get", URL: "https://api:6443/api", Err: &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}}, "the API server cannot be reached: there is no route to api:6443", "VPN", true},
		{"another error of the connection", &url.Error{Op: "Get", URL: "https://api:6443/api", Err: &net.OpError{Op: "dial", Err: errors.New("odd")}}, "the API server cannot be reached at api:6443: odd", "is it up?", true},
		{"a credential plugin", &url.Error{Op: "Get", URL: "https://api/api", Err: errors.New("getting credentials: exec: executable aws not found")}, "the program that your kubeconfig names for credentials failed: exec: executable aws not found", "install it", true},
		{"a port of this program", fmt.Errorf("port 8085 is in use: %w", &net.OpError{Op: "listen", Err: syscall.EADDRINUSE}), "", "", true},
		{"a kubeconfig that does not exist", &fs.PathError{Op: "stat", Path: "nowhere", Err: syscall.ENOENT}, "", "", false},
		{"overloaded", apierrors.NewTooManyRequests("later", 1), "", "run the command again in a minute", true},
		{"broken", apierrors.NewInternalError(errors.New("etcd")), "", "/readyz", true},
		{"an old version", apierrors.NewResourceExpired("too old"), "", "", true},
		{"interrupted", fmt.Errorf("get: %w", context.Canceled), "", "the command was interrupted", false},
		{"anything else", errors.New("no"), "", "", false},
	} {
		err := fmt.Errorf("read rollout: %w", tt.err)
		advised := WithAdvice(err, "v1")
		what, next, _ := strings.Cut(advised.Error(), "\n")
		want := err.Error()
		if tt.what != "" {
			want = "read rollout: " + tt.what
		}

		assert.That(t, what == want && (next == "") == (tt.next == "") && strings.Contains(next, tt.next),
			"%s: the error is %q, want %q and %q", tt.name, advised, want, tt.next)
		assert.That(t, errors.Is(advised, tt.err), "%s: the error does not wrap the original", tt.name)
		assert.Equal(t, Brief(err), want, tt.name, "in brief")
		assert.Equal(t, fleet.Passing(err), tt.passes, tt.name, "passing")
	}
}

func TestAnAttemptThatCannotBeginInTimeIsExplained(t *testing.T) {
	limiter := errors.New("rate: Wait(n=1) would exceed context deadline")
	for text, err := range map[string]error{
		"list rollouts: the API server cannot be reached: it closed every connection": fmt.Errorf(
			"list rollouts: failed to get server groups: %w", fmt.Errorf("client rate limiter Wait returned an error: %w - error from a previous attempt: EOF", limiter)),
		"list rollouts: the API server did not answer in time": fmt.Errorf("list rollouts: %w", fmt.Errorf("client rate limiter Wait returned an error: %w", limiter)),
	} {
		e, ok := explain(err, "", nil)
		got := e.in(err.Error())
		assert.That(t, ok && strings.HasPrefix(got, text) && !strings.Contains(got, "rate"), "%v: %q, want %q", err, got, text)
	}
}
