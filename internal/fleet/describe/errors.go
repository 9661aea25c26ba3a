package describe

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
