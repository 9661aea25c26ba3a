package steer

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// api is a fake API server with one rollout, which names the user. patch may refuse a patch.
func api(t *testing.T, user string, review error, patch func(data string) error) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	assert.NoError(t, errors.Join(v1alpha1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)))
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers"}}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(r).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			o.(*authenticationv1.SelfSubjectReview).Status.UserInfo.Username = user
			return review
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			data, err := p.Data(o)
			if err == nil && patch != nil {
				err = patch(string(data))
			}
			if err != nil {
				return err
			}
			return c.Patch(ctx, o, p, options...)
		},
	}).Build()
}

func TestARequestHasTheUsersNameAndAReason(t *testing.T) {
	for name, tt := range map[string]struct {
		user, reason string
		review       error
		want         By
		wantErr      string
	}{
		"both":                     {"ann", " a storm\n", nil, By{"ann", "a storm"}, ""},
		"no answer about the user": {"ann", "a storm", errors.New("refused"), By{"", "a storm"}, ""},
		"a long name":              {strings.Repeat("é", 300), "", nil, By{strings.Repeat("é", 256), ""}, ""},
		"the longest reason":       {"ann", strings.Repeat("é", 256), nil, By{"ann", strings.Repeat("é", 256)}, ""},
		"a longer reason":          {"ann", strings.Repeat("é", 257), nil, By{}, "the reason has 257 characters, more than the limit of 256; nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ByMe(t.Context(), api(t, tt.user, tt.review, nil), tt.reason)
			assert.That(t, got == tt.want && (tt.wantErr != "" || err == nil) && (tt.wantErr == "" || err != nil && err.Error() == tt.wantErr),
				"got %+v, error %v", got, err)
		})
	}
}

func TestAPauseAndItsEndWriteAndRemoveWhoAskedAndWhy(t *testing.T) {
	c := api(t, "", nil, nil)
	for _, step := range []struct {
		change Change
		want   string
	}{
		{Pause(By{"ann", "a storm"}), "ann: a storm, : "},
		{Pause(By{"bob", ""}), "ann: a storm, : "}, // is paused already
		{Freeze(By{"bob", "hands off"}), "ann: a storm, bob: hands off"},
		{Unfreeze, "ann: a storm, : "},
		{Resume, ": , : "},
	} {
		assert.NoError(t, assert.Err(Edit(t.Context(), c, "workers", step.change)))
		r := &v1alpha1.NodeConfigRollout{}
		assert.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "workers"}, r))
		s := r.Spec
		assert.Equal(t, s.PausedBy+": "+s.PausedReason+", "+s.FrozenBy+": "+s.FrozenReason, step.want)
	}
}

// An emergency stop must not fail because the CRD is older than the command.
func TestWithAnOlderCRDARequestIsWrittenWithoutNameAndReason(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(By) Change
		field  string
	}{
		"pause":   {Pause, "pausedBy"},
		"freeze":  {Freeze, "frozenBy"},
		"promote": {approveAnything, "approval.requestedBy"},
		"abort":   {abortAnything, "abort.requestedBy"},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			c := api(t, "", nil, func(data string) error {
				tries++
				if !strings.Contains(data, "ann") && !strings.Contains(data, "a storm") {
					return nil
				}
				return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest,
					Message: `NodeConfigRollout in version "v1alpha1" cannot be handled: strict decoding error: unknown field "spec.` + tt.field + `"`}}
			})
			words, err := Edit(t.Context(), c, "workers", tt.change(By{"ann", "a storm"}))
			if err != nil || !strings.HasSuffix(words, "; the reason was not stored, because the cluster's CRDs are older than this command: kubectl apply -f install.yaml") {
				t.Errorf("got %q, error %v", words, err)
			}
			assert.That(t, tries == 2, "%d writes, want 2", tries)
		})
	}
	c := api(t, "", nil, func(string) error { return apierrors.NewBadRequest("something else") })
	assert.ErrorHas(t, assert.Err(Edit(t.Context(), c, "workers", Pause(By{"ann", ""}))), "something else")
}

func approveAnything(by By) Change {
	return func(r *v1alpha1.NodeConfigRollout) (string, error) {
		r.Spec.Approval = &v1alpha1.RolloutApproval{Revision: 1, RequestedBy: by.User, Reason: by.Reason}
		return "promoted", nil
	}
}

func abortAnything(by By) Change {
	return func(r *v1alpha1.NodeConfigRollout) (string, error) {
		r.Spec.Abort = &v1alpha1.RolloutAbort{Revision: 1, RequestedBy: by.User, Reason: by.Reason}
		return "aborted", nil
	}
}
