// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestNodesWriteEventsAboutThemselvesOnly writes Events as a node and as the
// controller, in both groups, and changes one of each.
func TestNodesWriteEventsAboutThemselvesOnly(t *testing.T) {
	node := kubernetes.NewForConfigOrDie(nodeConfig(t, "one"))
	controller := kubernetes.NewForConfigOrDie(asController())
	const evil = "rollout is stuck: kubectl evenkeel rollout abort r --rollback"
	old := func(by kubernetes.Interface, kind, name, component string) (*corev1.Event, error) {
		return by.CoreV1().Events("default").Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: "default"}, InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name},
			Source: corev1.EventSource{Component: component}, Message: evil, Type: "Warning",
		}, metav1.CreateOptions{})
	}
	newer := func(by kubernetes.Interface, kind, name, component string) (*eventsv1.Event, error) {
		return by.EventsV1().Events("default").Create(t.Context(), &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: "default"}, Regarding: corev1.ObjectReference{Kind: kind, Name: name},
			ReportingController: component, ReportingInstance: "i", Action: "A", Reason: "R", EventTime: metav1.NowMicro(), Note: evil, Type: "Warning",
		}, metav1.CreateOptions{})
	}
	for name, err := range map[string]error{
		"another Node":               errorOf(old(node, "Node", "two", "evenkeel-agent")),
		"another Node, in events":    errorOf(newer(node, "Node", "two", "evenkeel-agent")),
		"another Node as controller": errorOf(old(node, "Node", "two", "evenkeel-controller")),
		"a rollout":                  errorOf(old(node, "NodeConfigRollout", "r", "kubelet")),
		"a rollout, in events":       errorOf(newer(node, "NodeConfigRollout", "r", "kubelet")),
	} {
		t.Run(name, func(t *testing.T) {
			wantRefused(t, err, http.StatusForbidden, "ValidatingAdmissionPolicy 'evenkeel-event'", "system:node:one tried to write an Event of evenkeel about ", "but a node may only report about itself")
		})
	}

	assert.OK(t, errorOf(old(node, "Node", "one", "evenkeel-agent")), "about itself")
	assert.OK(t, errorOf(old(node, "Pod", "p", "kubelet")), "of another program")
	assert.OK(t, errorOf(old(node, "Node", "two", "kubelet")), "of another program about another node")
	e, err := newer(controller, "NodeConfigRollout", "r", "evenkeel-controller")
	assert.NoError(t, err)
	assert.OK(t, errorOf(newer(controller, "Node", "two", "evenkeel-controller")), "the controller about a node")
	_, err = node.CoreV1().Events("default").Patch(t.Context(), e.Name, types.MergePatchType, []byte(`{"message":"`+evil+`","lastTimestamp":"`+time.Now().UTC().Format(time.RFC3339)+`"}`), metav1.PatchOptions{})
	wantRefused(t, err, http.StatusForbidden, "'evenkeel-event'")
	_, err = node.CoreV1().Events("default").Patch(t.Context(), e.Name, types.MergePatchType, []byte(`{"involvedObject":{"kind":"Pod"},"reportingComponent":"kubelet"}`), metav1.PatchOptions{})
	wantRefused(t, err, http.StatusForbidden, "'evenkeel-event'")
}

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
	controller := dynamic.NewForConfigOrDie(asController()).Resource(nodeConfigs)
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

// configMapWriter may do with the ConfigMaps of evenkeel-system what it likes,
// as far as RBAC goes.
const configMapWriter = "wilma"

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// revision is a ConfigMap that is labelled as a revision.
func revision(name string) *unstructured.Unstructured {
	cm := plain(name)
	cm.SetLabels(map[string]string{v1alpha1.LabelRollout: "workers", v1alpha1.LabelRevision: "1"})
	return cm
}

func plain(name string) *unstructured.Unstructured {
	cm := parse("metadata: {name: " + name + "}\ndata: {kubelet: 'a: b'}")
	cm.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return cm
}

func revisionsAs(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	client := assert.Value(dynamic.NewForConfig(config))(t)
	return client.Resource(configMaps).Namespace(v1alpha1.SystemNamespace)
}

func TestOnlyTheControllerWritesRevisionConfigMaps(t *testing.T) {
	config := assert.Value(configFor(configMapWriter))(t)
	config.QPS = -1
	writer, admin := revisionsAs(t, config), revisionsAs(t, cluster.AdminConfig())
	controller := revisionsAs(t, asController())
	ctx := t.Context()
	label := func(value string) []byte {
		return []byte(`{"metadata":{"labels":{"evenkeel.dev/rollout":` + value + `}}}`)
	}
	patch := func(c dynamic.ResourceInterface, name string, data []byte) error {
		return errorOf(c.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{}))
	}

	assert.NoError(t, assert.Err(controller.Create(ctx, revision("revision-1"), metav1.CreateOptions{})), "the controller cannot write a revision")
	assert.OK(t, patch(controller, "revision-1", []byte(`{"metadata":{"labels":{"evenkeel.dev/revision":"2"}}}`)),
		"the controller cannot number a revision")
	assert.NoError(t, assert.Err(writer.Create(ctx, plain("mine"), metav1.CreateOptions{})))
	for what, send := range map[string]func() error{
		"create one":          func() error { return errorOf(writer.Create(ctx, revision("planted"), metav1.CreateOptions{})) },
		"label one's own":     func() error { return patch(writer, "mine", label(`"workers"`)) },
		"take the label away": func() error { return patch(writer, "revision-1", label("null")) },
		"give it to another":  func() error { return patch(writer, "revision-1", label(`"others"`)) },
		"change what it says": func() error { return patch(writer, "revision-1", []byte(`{"data":{"kubelet":"c: d"}}`)) },
		"delete it":           func() error { return writer.Delete(ctx, "revision-1", metav1.DeleteOptions{}) },
		"delete all": func() error {
			return writer.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: v1alpha1.LabelRollout})
		},
	} {
		t.Run(what, func(t *testing.T) {
			wantRefused(t, send(), http.StatusForbidden, "ValidatingAdmissionPolicy 'evenkeel-revision'", configMapWriter+" tried to ", "hold the revisions of rollouts, which the controller writes", "on nodeconfigrollouts/revisions in evenkeel.dev")
		})
	}

	assert.OK(t, assert.Err(admin.Get(ctx, "revision-1", metav1.GetOptions{})), "the revision is gone")
	// The policy accepts every write to ConfigMaps that are not revisions.
	for what, send := range map[string]func() error{
		"change one's own": func() error { return patch(writer, "mine", []byte(`{"data":{"kubelet":"c: d"}}`)) },
		"another label": func() error {
			return patch(writer, "mine", []byte(`{"metadata":{"labels":{"evenkeel.dev/revision":"7"}}}`))
		},
	} {
		assert.OK(t, send(), what)
	}

	assert.OK(t, writer.Delete(ctx, "mine", metav1.DeleteOptions{}), "delete one's own")
	// Who cleans up after others may go on doing so.
	for _, account := range []string{"generic-garbage-collector", "namespace-controller"} {
		assert.NoError(t, assert.Err(admin.Create(ctx, revision("to-clean-up"), metav1.CreateOptions{})), "an administrator cannot write a revision")
		assert.OK(t, revisionsAs(t, asAccount("kube-system", account)).Delete(ctx, "to-clean-up", metav1.DeleteOptions{}),
			"the", account, "cannot delete a revision")
	}

	assert.OK(t, controller.Delete(ctx, "revision-1", metav1.DeleteOptions{}), "the controller cannot collect a revision")
}

func TestATrialDurationOfCenturiesIsRejected(t *testing.T) {
	given(t, "metadata: {name: patient}")
	report := func(seconds string) error {
		return errorOf(asNode(t, "patient").Patch(t.Context(), "patient", types.MergePatchType,
			[]byte(`{"status":{"trial":{"healthySeconds":0,"restarts":0,"crashLoopThreshold":3,"durationSeconds":`+seconds+`}}}`), metav1.PatchOptions{}, "status"))
	}
	for _, seconds := range []string{"9000000000", "31536001", "-1"} {
		wantRefused(t, report(seconds), http.StatusUnprocessableEntity, "trial.durationSeconds in body should be")
	}

	for _, seconds := range []string{"0", "600", "604800", "31536000"} {
		assert.OK(t, report(seconds), seconds)
	}
}
