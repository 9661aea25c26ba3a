package controller

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// usersAreVerified reports whether the API server writes the users' names into requests: whether the admission policy of
// config/actors is in force. Without an answer, names count as claimed.
func (c *Controller) usersAreVerified(ctx context.Context) bool {
	policy, binding := &admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{}
	name := types.NamespacedName{Name: v1alpha1.ActorsPolicy}
	err := c.client.Get(ctx, name, policy)
	if err == nil {
		err = c.client.Get(ctx, name, binding)
	}
	if err != nil {
		// NotFound or Forbidden: config/actors is not applied. API servers before 1.36 answer NotFound, too.
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && ctx.Err() == nil {
			c.log.Warn("cannot read the admission policy that verifies users' names: names count as claimed", "policy", name.Name, "err", err)
		}
		return false
	}
	fails := policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy == admissionv1.Fail
	// A binding with a selector applies to some requests only.
	return fails && policy.DeletionTimestamp == nil && binding.DeletionTimestamp == nil &&
		binding.Spec.PolicyName == name.Name && binding.Spec.ParamRef == nil && binding.Spec.MatchResources == nil
}
