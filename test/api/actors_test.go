package api_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// operators returns what two users with the role evenkeel-operator do with rollouts.
func operators(t *testing.T) (ann, bob func(body string) (*unstructured.Unstructured, error)) {
	t.Helper()
	givenRollout(t, "asked", `strategy: {steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}, {pause: {}}]}`)
	as := func(client *dynamic.DynamicClient) func(string) (*unstructured.Unstructured, error) {
		return func(body string) (*unstructured.Unstructured, error) {
			for deadline := time.Now().Add(timeout); ; time.Sleep(pollInterval) {
				o, err := client.Resource(rollouts).Patch(t.Context(), "asked", types.MergePatchType, []byte(`{"spec":`+body+`}`), metav1.PatchOptions{FieldValidation: "Strict"})
				if !isLate(err) || time.Now().After(deadline) {
					return o, err
				}
			}
		}
	}
	_, a := bound(t, "ann", "evenkeel-operator")
	_, b := bound(t, "bob", "evenkeel-operator")
	return as(a), as(b)
}

// isLate reports whether a mutating policy does not know the kind yet: the API server reads schemas with a delay.
func isLate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "There can be a delay between")
}

func TestNobodyAsksInTheNameOfAnother(t *testing.T) {
	ann, bob := operators(t)
	for _, step := range []struct {
		what, body string
		as         func(string) (*unstructured.Unstructured, error)
		refused    string
	}{
		{"a pause in another name", `{"paused":true,"pausedBy":"bob"}`, ann, "spec.pausedBy is bob, but the request is by ann: set it to your name or remove it"},
		{"a pause in one's own name", `{"paused":true,"pausedBy":"ann","pausedReason":"a storm"}`, ann, ""},
		{"another change by another user", `{"priority":3}`, bob, ""},
		{"another reason under the same name", `{"pausedReason":"no storm"}`, bob, "spec.pausedBy is ann, but the request is by bob"},
		{"another name under the same reason", `{"pausedBy":"eve"}`, bob, "spec.pausedBy is eve"},
		{"a plain resume", `{"paused":false}`, bob, ""},
		{"any name while nothing is paused", `{"pausedBy":"eve"}`, bob, ""},
		{"a pause with a stale name", `{"paused":true}`, bob, "spec.pausedBy is eve, but the request is by bob"},
		{"a pause without a name", `{"paused":true,"pausedBy":null}`, bob, ""},
		{"one's own name later", `{"pausedBy":"bob"}`, bob, ""},
		{"a freeze in another name", `{"frozen":true,"frozenBy":"ann"}`, bob, "spec.frozenBy is ann"},
		{"a freeze without a name", `{"frozen":true}`, bob, ""},
		{"an approval in another name", `{"approval":{"revision":1,"step":1,"requestedBy":"bob"}}`, ann, "spec.approval.requestedBy is bob"},
		{"an approval in one's own name", `{"approval":{"revision":1,"step":1,"requestedBy":"ann","reason":"checked"}}`, ann, ""},
		{"a later step under the same name", `{"approval":{"step":3}}`, bob, "spec.approval.requestedBy is ann"},
		{"an approval without a name", `{"approval":{"step":3,"requestedBy":null}}`, bob, ""},
		{"several false names", `{"approval":{"requestedBy":"eve"},"abort":{"revision":1,"requestedBy":"eve"}}`, bob,
			"spec.approval.requestedBy is eve, spec.abort.requestedBy is eve, but the request is by bob"},
		{"an abort in one's own name", `{"abort":{"revision":1,"requestedBy":"bob"}}`, bob, ""},
		{"a rollback under the same name", `{"abort":{"rollback":true}}`, ann, "spec.abort.requestedBy is bob"},
		{"a plain edit afterwards", `{"soakSeconds":7}`, ann, ""},
		{"a request that ends", `{"abort":null,"approval":null,"frozen":false}`, ann, ""},
	} {
		_, err := step.as(step.body)
		switch {
		case step.refused != "":
			wantRefused(t, err, http.StatusForbidden, `ValidatingAdmissionPolicy 'evenkeel-rollout'`, step.refused)
		case err != nil:
			t.Errorf("%s: %v", step.what, err)
		}
	}
	_, err := rolloutsAsAdmin(t).Create(t.Context(), rollout("refused", `paused: true, pausedBy: ann`), dryRun)
	wantRefused(t, err, http.StatusForbidden, "spec.pausedBy is ann, but the request is by admin")
}

// actors applies config/actors until the test ends, and waits until the policy is in force.
func actors(t *testing.T) {
	t.Helper()
	path := filepath.Join(root, "config/actors")
	mustKubectl(t, "apply", "-k", path)
	named := func(ctx context.Context) (bool, error) {
		o, err := rolloutsAsAdmin(t).Create(ctx, rollout("named", "paused: true"), dryRun)
		if isLate(err) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		_, is, err := unstructured.NestedString(o.Object, "spec", "pausedBy")
		return is, err
	}
	t.Cleanup(func() {
		assert.OK(t, assert.Err(kubectl(context.Background(), "delete", "-k", path)))
		err := wait.PollUntilContextTimeout(context.Background(), pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
			is, err := named(ctx)
			return !is, err
		})
		assert.That(t, err == nil, "the policy stays in force: %v", err)
	})
	assert.NoError(t, wait.PollUntilContextTimeout(t.Context(), pollInterval, timeout, true, named), "the policy is not in force")
}

func TestTheAPIServerWritesWhoAsks(t *testing.T) {
	ann, bob := operators(t)
	assert.NoError(t, assert.Err(ann(`{"paused":true,"pausedReason":"before the policy"}`)))
	actors(t)
	again := mustKubectl(t, "apply", "-k", filepath.Join(root, "config/actors"))
	assert.That(t, !strings.Contains(again, "configured") && !strings.Contains(again, "created"), "applying it again changes something: %s", again)
	for _, step := range []struct {
		what, body string
		as         func(string) (*unstructured.Unstructured, error)
		want       string // paused, frozen, approval, abort; - without a name
	}{
		{"a request from before", `{"priority":1}`, bob, "- - - -"},
		{"a claim to it", `{"pausedBy":"bob"}`, bob, "- - - -"},
		{"another reason", `{"pausedReason":"a storm"}`, bob, "bob - - -"},
		{"a false name for it", `{"pausedBy":"ann"}`, ann, "bob - - -"},
		{"its removal", `{"pausedBy":null}`, ann, "bob - - -"},
		{"another change", `{"priority":2}`, ann, "bob - - -"},
		{"resume and freeze", `{"paused":false,"frozen":true}`, ann, "- ann - -"},
		{"a name while nothing is paused", `{"pausedBy":"eve"}`, bob, "- ann - -"},
		{"an approval in a false name", `{"approval":{"revision":1,"step":1,"requestedBy":"ann"}}`, bob, "- ann bob -"},
		{"the next approval", `{"approval":{"step":3}}`, ann, "- ann ann -"},
		{"the same approval again", `{"approval":{"revision":1,"step":3}}`, bob, "- ann ann -"},
		{"an abort", `{"abort":{"revision":1,"reason":"wrong"}}`, bob, "- ann ann bob"},
		{"with rollback", `{"abort":{"rollback":true}}`, ann, "- ann ann ann"},
		{"all of them end", `{"abort":null,"approval":null,"frozen":null}`, bob, "- - - -"},
	} {
		o := assert.Value(step.as(step.body))(t, step.what)
		got := askers(o)
		assert.That(t, got == step.want, "%s: the names are %q, want %q", step.what, got, step.want)
	}
	o, err := rolloutsAsAdmin(t).Create(t.Context(), rollout("new", `paused: true, pausedBy: ann, abort: {revision: 1}`), dryRun)
	if err != nil || askers(o) != "admin - - admin" {
		t.Errorf("a new rollout has the names %q, error %v", askers(o), err)
	}
	long := "oidc:https://issuer.example.com/" + strings.Repeat("é", 300)
	mustKubectl(t, "create", "clusterrolebinding", "long", "--clusterrole=evenkeel-operator", "--user="+long)
	defer mustKubectl(t, "delete", "clusterrolebinding", "long")
	config, err := configFor("admin", "system:masters")
	assert.NoError(t, err)
	config.Impersonate.UserName = long
	o, err = dynamic.NewForConfigOrDie(config).Resource(rollouts).Patch(t.Context(), "asked", types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{})
	if want := string([]rune(long)[:256]) + " - - -"; err != nil || askers(o) != want {
		t.Errorf("the names are %q, want %q, error %v", askers(o), want, err)
	}
}

// The controller writes the status only, which keeps the names.
func TestWritesOfTheStatusKeepTheNames(t *testing.T) {
	ann, _ := operators(t)
	actors(t)
	assert.NoError(t, assert.Err(ann(`{"paused":true}`)))
	o, err := rolloutsAsAdmin(t).Patch(t.Context(), "asked", types.MergePatchType, []byte(`{"status":{"phase":"Paused"},"spec":{"pausedBy":"eve"}}`), metav1.PatchOptions{}, "status")
	if err != nil || askers(o) != "ann - - -" {
		t.Errorf("the names are %q, error %v", askers(o), err)
	}
}

// askers are the names in the spec of a rollout.
func askers(o *unstructured.Unstructured) string {
	if o == nil {
		return ""
	}
	var names []any
	for _, path := range [][]string{{"pausedBy"}, {"frozenBy"}, {"approval", "requestedBy"}, {"abort", "requestedBy"}} {
		name, is, _ := unstructured.NestedString(o.Object, append([]string{"spec"}, path...)...)
		if !is {
			name = "-"
		}
		names = append(names, name)
	}
	return fmt.Sprintf("%s %s %s %s", names...)
}
