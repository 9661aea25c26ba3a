// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestOnlyTheControllerWritesItsRecords patches each field that the controller
// reads back as its own record, as an operator, who may patch NodeConfigs, and
// as the controller.
func TestOnlyTheControllerWritesItsRecords(t *testing.T) {
	const (
		at     = `"assignedAt":"2200-01-01T00:00:00Z"`
		ref    = `"configMapRef":{"namespace":"a","name":"b","uid":"u"}`
		other  = `"configMapRef":{"namespace":"a","name":"b","uid":"v"}`
		record = `"rolloutRef":{"name":"r","revision":1,"attempt":1,` + at + `}`
	)
	_, operator := bound(t, "oscar", "evenkeel-operator")
	config := assert.Value(configFor("system:serviceaccount:evenkeel-system:evenkeel-controller", "system:serviceaccounts:evenkeel-system"))(t)
	controller := dynamic.NewForConfigOrDie(config).Resource(nodeConfigs)
	patch := func(by dynamic.NamespaceableResourceInterface, text string) error {
		return errorOf(by.Patch(t.Context(), "self", types.MergePatchType, []byte(text), metav1.PatchOptions{}))
	}
	for name, tt := range map[string]struct{ before, forged, what string }{
		"a new observation":     {"{}", `{"metadata":{"annotations":{"evenkeel.dev/observed":"{}"}}}`, "the annotation evenkeel.dev/observed"},
		"another observation":   {`{"metadata":{"annotations":{"evenkeel.dev/observed":"{}"}}}`, `{"metadata":{"annotations":{"evenkeel.dev/observed":"{ }"}}}`, "the annotation evenkeel.dev/observed"},
		"no observation":        {`{"metadata":{"annotations":{"evenkeel.dev/observed":"{}"}}}`, `{"metadata":{"annotations":null}}`, "the annotation evenkeel.dev/observed"},
		"a new rolloutRef":      {"{}", `{"spec":{"configSource":{` + ref + `,` + record + `}}}`, "a spec.configSource with a rolloutRef"},
		"another rolloutRef":    {`{"spec":{"configSource":{` + ref + `,` + record + `}}}`, `{"spec":{"configSource":{"rolloutRef":{"attempt":7}}}}`, "a spec.configSource with a rolloutRef"},
		"a ConfigMap beside it": {`{"spec":{"configSource":{` + ref + `,` + record + `}}}`, `{"spec":{"configSource":{` + other + `}}}`, "a spec.configSource with a rolloutRef"},
		"takenBack":             {"{}", `{"spec":{"takenBack":{"rollout":"r","revision":1,"attempt":1,` + at + `}}}`, "spec.takenBack"},
	} {
		t.Run(name, func(t *testing.T) {
			given(t, "metadata: {name: self}")
			assert.OK(t, patch(controller, tt.before), "the controller's record")
			wantRefused(t, patch(operator.Resource(nodeConfigs), tt.forged), http.StatusForbidden, "ValidatingAdmissionPolicy 'evenkeel-record'",
				"oscar tried to write "+tt.what+" of NodeConfig self, which only the controller writes")
			assert.OK(t, patch(operator.Resource(nodeConfigs), `{"metadata":{"annotations":{"example.com/a":"b"}},"spec":{"revoked":["x"]}}`), "what is no record")
			assert.OK(t, patch(controller, tt.forged), "the same by the controller")
			assert.OK(t, patch(operator.Resource(nodeConfigs), `{"spec":{"configSource":{`+other+`,"rolloutRef":null},"takenBack":null}}`), "assign")
		})
	}
}

func TestNumbersThatNobodyCountsToAreRejected(t *testing.T) {
	given(t, "metadata: {name: self}")
	ref := func(text string) string {
		return `{"spec":{"configSource":{"local":{},"rolloutRef":{"name":"r","assignedAt":"2026-01-02T03:04:05Z",` + text + `}}}}`
	}
	for _, patch := range []string{
		ref(`"revision":9223372036854775807,"attempt":1`), ref(`"revision":1,"attempt":1000000001`), ref(`"revision":1,"attempt":1,"term":9223372036854775807`),
		ref(`"revision":1,"attempt":1,"previous":{"rollout":"r","revision":1000000001,"attempt":1,"configMapRef":{"namespace":"a","name":"b","uid":"u"}}`),
		ref(`"revision":1,"attempt":1,"previous":{"rollout":"r","revision":1,"attempt":1000000001,"configMapRef":{"namespace":"a","name":"b","uid":"u"}}`),
		`{"spec":{"takenBack":{"rollout":"r","revision":1000000001,"attempt":1,"assignedAt":"2026-01-02T03:04:05Z"}}}`,
		`{"spec":{"takenBack":{"rollout":"r","revision":1,"attempt":1000000001,"assignedAt":"2026-01-02T03:04:05Z"}}}`,
	} {
		_, err := asAdmin(t).Patch(t.Context(), "self", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		wantRefused(t, err, http.StatusUnprocessableEntity, "1000000000")
	}

	client := dynamic.NewForConfigOrDie(cluster.AdminConfig()).Resource(rollouts)
	for _, spec := range []string{"retry: {revision: 1, attempt: 1000000001}", "retry: {revision: 1000000001, attempt: 2}", "approval: {revision: 1000000001, step: 0}", "abort: {revision: 1000000001}"} {
		_, err := client.Create(t.Context(), rollout("refused", spec), dryRun)
		wantRefused(t, err, http.StatusUnprocessableEntity, "should be less than or equal to 1")
	}
}

func TestOddTimesAreRejected(t *testing.T) {
	given(t, "metadata: {name: self}")
	for _, at := range []string{"9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-01-02T03:04:05+01:00"} {
		_, err := asNode(t, "self").Patch(t.Context(), "self", types.MergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"ConfigOK","status":"True","reason":"R","message":"","lastTransitionTime":"`+at+`"}]}}`), metav1.PatchOptions{}, "status")
		wantRefused(t, err, http.StatusUnprocessableEntity, "reported a time that is not written as 2006-01-02T15:04:05Z")
		_, err = asAdmin(t).Patch(t.Context(), "self", types.MergePatchType,
			[]byte(`{"spec":{"configSource":{"local":{},"rolloutRef":{"name":"r","revision":1,"attempt":1,"assignedAt":"`+at+`"}}}}`), metav1.PatchOptions{})
		wantRefused(t, err, http.StatusUnprocessableEntity, "an assignedAt like 2006-01-02T15:04:05Z, from 1970 to 2999")
		_, err = asAdmin(t).Patch(t.Context(), "self", types.MergePatchType,
			[]byte(`{"spec":{"takenBack":{"rollout":"r","revision":1,"attempt":1,"assignedAt":"`+at+`"}}}`), metav1.PatchOptions{})
		wantRefused(t, err, http.StatusUnprocessableEntity, "spec.takenBack.assignedAt")
	}

	assert.OK(t, errorOf(asNode(t, "self").Patch(t.Context(), "self", types.MergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"ConfigOK","status":"True","reason":"R","message":"","lastTransitionTime":"1970-01-01T00:00:07Z"}]}}`), metav1.PatchOptions{}, "status")), "a node without a clock")
}
