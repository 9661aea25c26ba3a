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

// WithAdvice adds to an error of the API what to do next. version is the version of this program.
func WithAdvice(err error, version string) error {
	var noGroup *discovery.ErrGroupDiscoveryFailed
	var unreachable *url.Error
	var network *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w\nthe command was interrupted: run it again", err)
	case meta.IsNoMatchError(err), errors.As(err, &noGroup):
		return fmt.Errorf("%w\nthe cluster does not serve %s: install evenkeel's API with: kubectl apply -f install.yaml", err, v1alpha1.GroupVersion)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w\nlog in again, or choose another --context or --kubeconfig", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w\nask an administrator for this permission; kubectl auth can-i --list shows your permissions", err)
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "strict decoding error: unknown field"):
		return fmt.Errorf("%w\nthe cluster's CRDs are older than this kubectl-evenkeel (%s): kubectl apply -f install.yaml", err, version)
	case errors.As(err, &unreachable), errors.As(err, &network):
		return fmt.Errorf("%w\nthe API server cannot be reached: is it up, and are --context and --kubeconfig right?", err)
	}
	return err
}
