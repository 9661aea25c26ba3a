package report

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Explain adds to an error of the API, which says what was refused, what to do next. The version is that of the program.
func Explain(err error, version string) error {
	var noGroup *discovery.ErrGroupDiscoveryFailed
	var unreachable *url.Error
	var network *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w\nit was interrupted: run it again", err)
	case meta.IsNoMatchError(err), errors.As(err, &noGroup):
		return fmt.Errorf("%w\nthis cluster does not know %s: install evenkeel's API with: kubectl apply -k config/default", err, v1alpha1.GroupVersion)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w\nlog in again, or choose another --context or --kubeconfig", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w\nask an administrator for this right; kubectl auth can-i --list shows which you have", err)
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "strict decoding error: unknown field"):
		return fmt.Errorf("%w\nthe cluster's CRDs are older than this kubectl-evenkeel (%s): kubectl apply -k config/default", err, version)
	case errors.As(err, &unreachable), errors.As(err, &network):
		return fmt.Errorf("%w\nthe API server cannot be reached: is it up, and are --context and --kubeconfig right?", err)
	}
	return err
}

// Passing tells an error that may go away by itself, such as an API server that restarts, from one that will not.
func Passing(err error) bool {
	var unreachable *url.Error
	var network *net.OpError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		code := status.Status().Code
		return code >= 500 || code == 429 || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	case errors.Is(err, context.Canceled):
		return false
	}
	return errors.As(err, &unreachable) || errors.As(err, &network)
}

// notFound is the error for a rollout that there is not: it says which there are.
func notFound(ctx context.Context, c client.Reader, name string) error {
	names, err := RolloutNames(ctx, c)
	if err != nil {
		return fmt.Errorf("rollout %q does not exist", name)
	}
	if len(names) == 0 {
		return fmt.Errorf("rollout %q does not exist, and no other: make one with: kubectl evenkeel push", name)
	}
	return fmt.Errorf("rollout %q does not exist; these do: %s", name, Few(names))
}
