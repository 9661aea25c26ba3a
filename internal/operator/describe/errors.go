// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// explanation says what an error of the API means and what to do next.
type explanation struct {
	// raw is the part of the error's chain that what replaces.
	raw error
	// what says what happened and why; empty: the error's own words do.
	what string
	next string
}

// advised is an error in other words.
type advised struct {
	err   error
	words string
}

func (a *advised) Error() string { return a.words }
func (a *advised) Unwrap() error { return a.err }

// WithAdvice returns an error of the API in plain words, and in further lines what to do next. Other errors are returned unchanged.
// version is the version of this program; roles are the roles of evenkeel that the command needs, as far as they are known.
func WithAdvice(err error, version string, roles ...string) error {
	e, ok := explain(err, version, roles)
	if !ok {
		return err
	}
	return &advised{err, e.in(err.Error()) + "\n" + e.next}
}

// Brief returns an error of the API in plain words, without advice.
func Brief(err error) string {
	if e, ok := explain(err, "", nil); ok {
		return e.in(err.Error())
	}
	return err.Error()
}

// explain returns the explanation of an error of the API. ok is false for other errors.
func explain(err error, version string, roles []string) (e explanation, ok bool) {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, context.Canceled):
		return explanation{next: "the command was interrupted: run it again"}, true
	case meta.IsNoMatchError(err):
		return explanation{beginning(err, "unable to retrieve the complete list of server APIs: ", "no matches for "),
			"the cluster does not serve " + v1alpha1.GroupVersion.String(),
			"install evenkeel's API with: kubectl apply -f install.yaml\n" +
				"if it is installed, the API server is overloaded or starting: run the command again in a minute\n" +
				"or this is another cluster: kubectl config current-context; choose one with --context"}, true
	case errors.As(err, &status):
		return ofStatus(status, err, version, roles)
	}
	if e, ok := ofConnection(err); ok {
		return e, true
	}
	return ofAnswer(err)
}

// ofStatus explains an answer of the API server, or of something that answers in its place.
func ofStatus(status apierrors.APIStatus, err error, version string, roles []string) (explanation, bool) {
	s := status.Status()
	raw, _ := status.(error)
	foreign := apierrors.HasStatusCause(raw, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	case apierrors.IsUnauthorized(err):
		return explanation{raw, "the API server does not accept your credentials (401 Unauthorized): they are missing, have expired, or are of " +
			"another cluster",
			"log in again, or choose another --context, --kubeconfig or --token; kubectl auth whoami shows as whom you are logged in"}, true
	case foreign:
		return ofForeign(raw, s), true
	case apierrors.IsForbidden(err):
		return ofForbidden(s, roles), true
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "strict decoding error: unknown field"):
		return explanation{next: "the cluster's CRDs are older than this kubectl-evenkeel (" + version + "): kubectl apply -f install.yaml"}, true
	case apierrors.IsTooManyRequests(err):
		return explanation{next: "the API server is overloaded, or limits your requests: run the command again in a minute"}, true
	case s.Code >= 500:
		return explanation{next: "the API server has a problem of its own: run the command again in a minute; kubectl get --raw " +
			"'/readyz?verbose' shows what is wrong"}, true
	}
	return explanation{}, false
}

// noise begins the errors of a client that finds out what a server serves. It says nothing to users.
var noise = []string{"failed to get server groups: ", "failed to get API group resources: ",
	"unable to retrieve the complete list of server APIs: ", v1alpha1.GroupVersion.String() + ": "}

// in returns the text of an error with what in place of the raw part.
func (e explanation) in(text string) string {
	if e.what == "" {
		return text
	}
	before, after, found := "", "", false
	if e.raw != nil {
		before, after, found = strings.Cut(text, e.raw.Error())
	}
	if !found {
		return e.what + " (" + text + ")"
	}
	for _, words := range noise {
		before = strings.ReplaceAll(before, words, "")
	}
	return before + e.what + after
}
