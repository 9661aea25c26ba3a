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
)

var (
	errNoAnswer = errors.New("no answer in time")
	errClosed   = errors.New("the connection was closed before there was an answer")
)

// answered tells whether err is something that an API server said.
func answered(err error) bool {
	return err == nil || codeOf(err) != 0
}

// codeOf is the HTTP status of an answer, 0 if there was none.
func codeOf(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// hopeless tells whether asking again within a second or two is of no use: nobody listens there, or there is nothing
// to ask with.
func hopeless(err error) bool {
	var missing *kubeconfigError
	return utilnet.IsConnectionRefused(err) || errors.As(err, &missing)
}

// noSuchResource tells whether err says that the API server does not know the kind of object, not the object.
func noSuchResource(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}

// explain says in plain words why object could not be had, and what to do about it; grant is what to do if it is a
// matter of rights.
func explain(err error, object, grant string) string {
	var missing *kubeconfigError
	switch {
	case errors.As(err, &missing) && errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s cannot be read: kubeconfig %s does not exist yet, or a file that it names (%v); waiting for the kubelet to obtain its certificate",
			object, missing.path, missing.err)
	case errors.As(err, &missing):
		return fmt.Sprintf("%s cannot be read: kubeconfig %s cannot be used: %v", object, missing.path, missing.err)
	case utilnet.IsConnectionRefused(err):
		return fmt.Sprintf("%s cannot be read: the API server refuses connections (%s); trying again", object, last(err))
	case errors.Is(err, errNoAnswer), errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s cannot be read: the API server gave no answer in time; trying again", object)
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("%s cannot be read: the API server does not accept this node's credentials (401): see whether the client certificate of its kubeconfig has expired", object)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%s cannot be read: forbidden to this node (403): %s", object, grant)
	case noSuchResource(err):
		return fmt.Sprintf("%s cannot be read: the API server does not know this kind of object (404): apply evenkeel's CRDs", object)
	case codeOf(err) >= http.StatusInternalServerError:
		return fmt.Sprintf("%s cannot be read: the API server failed (%d): %s; trying again", object, codeOf(err), bound(err.Error()))
	case codeOf(err) == http.StatusTooManyRequests:
		return fmt.Sprintf("%s cannot be read: the API server is overloaded (429); trying again", object)
	default:
		return fmt.Sprintf("%s cannot be read: %s; trying again", object, bound(err.Error()))
	}
}

// last returns the innermost words of err: for a connection, the reason without the URL.
func last(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		if strings.HasPrefix(err.Error(), "dial ") {
			break
		}
		err = inner
	}
	return bound(err.Error())
}

// ourEnd is this end of a connection in an error of package net: its port is another one each time.
var ourEnd = regexp.MustCompile(`(\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:.%a-z]+\]):\d+->`)

// bound keeps words to one line that fits a condition, and that is the same as long as the cause is.
func bound(words string) string {
	words = ourEnd.ReplaceAllString(words, "")
	words = strings.Join(strings.Fields(words), " ")
	const most = 400
	if len(words) > most {
		words = strings.ToValidUTF8(words[:most], "") + "..."
	}
	return words
}
