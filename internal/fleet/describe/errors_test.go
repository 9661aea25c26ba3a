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

	"github.com/evenkeel/evenkeel/internal/fleet/query"
)

func TestErrorsAreExtendedWithAdvice(t *testing.T) {
	rollouts := schema.GroupResource{Group: "evenkeel.dev", Resource: "nodeconfigrollouts"}
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, tt := range []struct {
		name   string
		err    error
		next   string // what WithAdvice adds; empty: nothing
		passes bool
	}{
		{"no CRD", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "evenkeel.dev", Kind: "NodeConfigRollout"}}, "kubectl apply -f install.yaml", false},
		{"not logged in", apierrors.NewUnauthorized("who are you"), "log in again", false},
		{"forbidden", apierrors.NewForbidden(rollouts, "workers", errors.New("no")), "ask an administrator for this permission", false},
		{"an older CRD", apierrors.NewBadRequest(`strict decoding error: unknown field "spec.x"`), "CRDs are older", false},
		{"refused", &url.Error{Op: "Get", URL: "https://api", Err: refused}, "the API server cannot be reached", true},
		{"cut off", refused, "the API server cannot be reached", true},
		{"a kubeconfig that does not exist", &fs.PathError{Op: "stat", Path: "nowhere", Err: syscall.ENOENT}, "", false},
		{"overloaded", apierrors.NewTooManyRequests("later", 1), "", true},
		{"broken", apierrors.NewInternalError(errors.New("etcd")), "", true},
		{"an old version", apierrors.NewResourceExpired("too old"), "", true},
		{"interrupted", fmt.Errorf("get: %w", context.Canceled), "the command was interrupted", false},
		{"anything else", errors.New("no"), "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := fmt.Errorf("read rollout: %w", tt.err)
			words := WithAdvice(err, "v1").Error()
			added, ok := strings.CutPrefix(words, err.Error())
			if !ok || tt.next == "" && added != "" || !strings.Contains(added, tt.next) {
				t.Errorf("the error is %q, want %q added", words, tt.next)
			}
			if got := query.Passing(err); got != tt.passes {
				t.Errorf("passing is %v, want %v", got, tt.passes)
			}
		})
	}
}
