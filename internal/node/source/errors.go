// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/evenkeel/evenkeel/internal/listwatch"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// errNoAnswer means that the API server did not answer in time.
var errNoAnswer = listwatch.ErrSilent

// answered reports whether an API server answered the request that returned
// err.
func answered(err error) bool {
	return err == nil || codeOf(err) != 0
}

// codeOf returns the HTTP status of an answer, 0 if there was none.
func codeOf(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}

	return 0
}

// unavailable reports whether a retry within seconds is useless: the connection
// is refused, or there is no usable kubeconfig.
func unavailable(err error) bool {
	var config *kubeconfigError
	return utilnet.IsConnectionRefused(err) || errors.As(err, &config)
}

// silent reports whether the API server gave no usable answer, is overloaded
// (429), or failed (5xx).
func silent(err error) bool {
	code := codeOf(err)
	return code == 0 || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// intentAfter returns what the failure to read an object says about the
// intended configuration: that credentials or rights are missing is an answer,
// after which the object is not used. Everything else may be an outage.
func intentAfter(err error) trial.IntentKind {
	if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
		return trial.Invalid
	}

	return trial.Unanswered
}

// noSuchResource reports whether the API server does not know the kind of
// object, as opposed to the object.
func noSuchResource(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}

	details := status.Status().Details

	return details == nil || details.Name == ""
}

// describeError says why object cannot be read, and what to do about it; grant
// is the remedy for missing rights.
func describeError(err error, object, grant string) string {
	var config *kubeconfigError
	switch {
	case errors.As(err, &config) && errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s cannot be read: kubeconfig %s does not exist yet, or a file that it names (%v); waiting for the kubelet to "+
			"obtain its certificate",
			object, config.path, config.err)
	case errors.As(err, &config):
		return fmt.Sprintf("%s cannot be read: kubeconfig %s cannot be used: %v", object, config.path, config.err)
	case utilnet.IsConnectionRefused(err):
		return fmt.Sprintf("%s cannot be read: the API server refuses connections (%s); retrying", object, innermost(err))
	case errors.Is(err, errNoAnswer), errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s cannot be read: the API server did not answer in time; retrying", object)
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("%s cannot be read: the API server does not accept this node's credentials (401): check whether the client "+
			"certificate of its kubeconfig has expired", object)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%s cannot be read: forbidden to this node (403): %s", object, grant)
	case noSuchResource(err):
		return fmt.Sprintf("%s cannot be read: the API server does not know this kind of object (404): apply evenkeel's CRDs", object)
	case codeOf(err) >= http.StatusInternalServerError:
		return fmt.Sprintf("%s cannot be read: the API server failed (%d): %s; retrying", object, codeOf(err), oneLine(err.Error()))
	case codeOf(err) == http.StatusTooManyRequests:
		return fmt.Sprintf("%s cannot be read: the API server is overloaded (429); retrying", object)
	default:
		return fmt.Sprintf("%s cannot be read: %s; retrying", object, oneLine(err.Error()))
	}
}

// innermost returns the innermost error as text: for a connection, the reason
// without the URL.
func innermost(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		if strings.HasPrefix(err.Error(), "dial ") {
			break
		}

		err = inner
	}

	return oneLine(err.Error())
}

// localAddress matches the local end of a connection in an error of package
// net, whose port differs each time.
var localAddress = regexp.MustCompile(`(\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:.%a-z]+\]):\d+->`)

// oneLine shortens a text to one line for a condition, and removes what differs
// between equal errors.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(localAddress.ReplaceAllString(text, "")), " ")
	return printable.Truncate(text, 400)
}
