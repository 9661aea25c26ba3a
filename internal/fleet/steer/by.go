package steer

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// By is who makes a request, and why. Both are optional.
type By struct{ User, Reason string }

// ByMe returns the user of a client, as the API server names it, with a reason. Without an answer of the API server, the user is
// not known: that must not prevent a request. The error says that the reason is too long.
func ByMe(ctx context.Context, c client.Client, reason string) (By, error) {
	by := By{Reason: strings.TrimSpace(reason)}
	if n := utf8.RuneCountInString(by.Reason); n > v1alpha1.MaxRequestText {
		return By{}, fmt.Errorf("the reason has %s, more than the limit of %d; nothing was changed", printable.Count(n, "character"), v1alpha1.MaxRequestText)
	}
	review := &authenticationv1.SelfSubjectReview{}
	if c.Create(ctx, review) == nil {
		name := []rune(review.Status.UserInfo.Username)
		by.User = string(name[:min(len(name), v1alpha1.MaxRequestText)])
	}
	return by, nil
}

// withoutBy removes who makes requests, and why, from a spec, for a CRD that lacks these fields. It reports whether that removes a
// reason.
func withoutBy(s *v1alpha1.NodeConfigRolloutSpec) (reason bool) {
	reason = s.PausedReason != "" || s.FrozenReason != ""
	s.PausedBy, s.PausedReason, s.FrozenBy, s.FrozenReason = "", "", "", ""
	if a := s.Approval; a != nil {
		reason = reason || a.Reason != ""
		a.RequestedBy, a.Reason = "", ""
	}
	if a := s.Abort; a != nil {
		reason = reason || a.Reason != ""
		a.RequestedBy, a.Reason = "", ""
	}
	return reason
}

// lacksBy reports whether an API server refused an edit because its CRD is older than these fields.
func lacksBy(err error) bool {
	if !apierrors.IsBadRequest(err) {
		return false
	}
	for _, field := range []string{"pausedBy", "pausedReason", "frozenBy", "frozenReason", "approval.requestedBy", "approval.reason", "abort.requestedBy", "abort.reason"} {
		if strings.Contains(err.Error(), `unknown field "spec.`+field+`"`) {
			return true
		}
	}
	return false
}
