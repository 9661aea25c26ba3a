// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
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
	node := kubernetes.NewForConfigOrDie(nodeConfig("one"))
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
		"another Node":               assert.Err(old(node, "Node", "two", "evenkeel-agent")),
		"another Node, in events":    assert.Err(newer(node, "Node", "two", "evenkeel-agent")),
		"another Node as controller": assert.Err(old(node, "Node", "two", "evenkeel-controller")),
		"a rollout":                  assert.Err(old(node, "NodeConfigRollout", "r", "kubelet")),
		"a rollout, in events":       assert.Err(newer(node, "NodeConfigRollout", "r", "kubelet")),
	} {
		t.Run(name, func(t *testing.T) {
			wantRefused(t, err, http.StatusForbidden, "ValidatingAdmissionPolicy 'evenkeel-event'", "system:node:one tried to write an Event of evenkeel about ", "but a node may only report about itself")
		})
	}

	assert.OK(t, assert.Err(old(node, "Node", "one", "evenkeel-agent")), "about itself")
	assert.OK(t, assert.Err(old(node, "Pod", "p", "kubelet")), "of another program")
	assert.OK(t, assert.Err(old(node, "Node", "two", "kubelet")), "of another program about another node")
	assert.OK(t, assert.Err(newer(controller, "Node", "two", "evenkeel-controller")), "the controller about a node")
	e := assert.Value(newer(controller, "NodeConfigRollout", "r", "evenkeel-controller"))(t)
	for _, patch := range []string{
		`{"message":"` + evil + `","lastTimestamp":"` + time.Now().UTC().Format(time.RFC3339) + `"}`,
		`{"involvedObject":{"kind":"Pod"},"reportingComponent":"kubelet"}`,
	} {
		_, err := node.CoreV1().Events("default").Patch(t.Context(), e.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		wantRefused(t, err, http.StatusForbidden, "'evenkeel-event'")
	}
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
	controller := as(asController())
	patch := func(by dynamic.ResourceInterface, text string) error { return merge(t, by, "self", text) }
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

// Whoever reads all NodeConfigs, as the controller does, reads none if one
// cannot be decoded.
func TestNumbersAndTimesThatNobodyReadsAreRejected(t *testing.T) {
	given(t, "metadata: {name: self}")
	const ref, taken = `{"spec":{"configSource":{"local":{},"rolloutRef":{"name":"r",%s}}}}`, `{"spec":{"takenBack":{"rollout":"r",%s}}}`
	const at = `,"assignedAt":"2026-01-02T03:04:05Z"`
	assign := func(format, fields string) error { return merge(t, asAdmin(), "self", fmt.Sprintf(format, fields)) }
	for _, numbers := range []string{`"revision":9223372036854775807,"attempt":1`, `"revision":1,"attempt":1000000001`} {
		wantRefused(t, assign(ref, numbers+at), http.StatusUnprocessableEntity, "1000000000")
		wantRefused(t, assign(taken, numbers+at), http.StatusUnprocessableEntity, "1000000000")
		previous := `"revision":1,"attempt":1,"previous":{"rollout":"r",` + numbers + `,"configMapRef":{"namespace":"a","name":"b","uid":"u"}}`
		wantRefused(t, assign(ref, previous+at), http.StatusUnprocessableEntity, "1000000000")
	}

	wantRefused(t, assign(ref, `"revision":1,"attempt":1,"term":9223372036854775807`+at), http.StatusUnprocessableEntity, "1000000000")
	for _, spec := range []string{"retry: {revision: 1, attempt: 1000000001}", "retry: {revision: 1000000001, attempt: 2}", "approval: {revision: 1000000001, step: 0}", "abort: {revision: 1000000001}"} {
		_, err := rolloutsAsAdmin().Create(t.Context(), rollout("refused", spec), dryRun)
		wantRefused(t, err, http.StatusUnprocessableEntity, "should be less than or equal to 1")
	}

	for _, at := range []string{"9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-01-02T03:04:05+01:00"} {
		fields := `"revision":1,"attempt":1,"assignedAt":"` + at + `"`
		wantRefused(t, assign(ref, fields), http.StatusUnprocessableEntity, "an assignedAt like 2006-01-02T15:04:05Z, from 1970 to 2999")
		wantRefused(t, assign(taken, fields), http.StatusUnprocessableEntity, "spec.takenBack.assignedAt")
	}
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
	cm := parse("metadata: {name: " + name + ", namespace: evenkeel-system}\ndata: {kubelet: 'a: b'}")
	cm.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return cm
}

func revisionsAs(config *rest.Config) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(config).Resource(configMaps).Namespace(v1alpha1.SystemNamespace)
}

func TestOnlyTheControllerWritesRevisionConfigMaps(t *testing.T) {
	writer, controller := revisionsAs(configFor(configMapWriter)), revisionsAs(asController())
	ctx := t.Context()
	label := func(value string) string { return `{"metadata":{"labels":{"evenkeel.dev/rollout":` + value + `}}}` }

	assert.NoError(t, assert.Err(controller.Create(ctx, revision("revision-1"), metav1.CreateOptions{})), "the controller cannot write a revision")
	assert.OK(t, merge(t, controller, "revision-1", `{"metadata":{"labels":{"evenkeel.dev/revision":"2"}}}`),
		"the controller cannot number a revision")
	assert.NoError(t, assert.Err(writer.Create(ctx, plain("mine"), metav1.CreateOptions{})))
	for what, err := range map[string]error{
		"create one":          assert.Err(writer.Create(ctx, revision("planted"), metav1.CreateOptions{})),
		"label one's own":     merge(t, writer, "mine", label(`"workers"`)),
		"take the label away": merge(t, writer, "revision-1", label("null")),
		"give it to another":  merge(t, writer, "revision-1", label(`"others"`)),
		"change what it says": merge(t, writer, "revision-1", `{"data":{"kubelet":"c: d"}}`),
		"delete it":           writer.Delete(ctx, "revision-1", metav1.DeleteOptions{}),
		"delete all":          writer.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: v1alpha1.LabelRollout}),
	} {
		t.Run(what, func(t *testing.T) {
			wantRefused(t, err, http.StatusForbidden, "ValidatingAdmissionPolicy 'evenkeel-revision'", configMapWriter+" tried to ",
				"hold the revisions of rollouts, which the controller writes", "on nodeconfigrollouts/revisions in evenkeel.dev")
		})
	}

	// The policy accepts every write to ConfigMaps that are not revisions.
	assert.OK(t, merge(t, writer, "mine", `{"data":{"kubelet":"c: d"}}`), "change one's own")
	assert.OK(t, merge(t, writer, "mine", `{"metadata":{"labels":{"evenkeel.dev/revision":"7"}}}`), "another label")
	assert.OK(t, writer.Delete(ctx, "mine", metav1.DeleteOptions{}), "delete one's own")
	// Who cleans up after others may go on doing so.
	for _, account := range []string{"generic-garbage-collector", "namespace-controller"} {
		created(t, revision("to-clean-up"))
		assert.OK(t, revisionsAs(asAccount("kube-system", account)).Delete(ctx, "to-clean-up", metav1.DeleteOptions{}),
			"the", account, "cannot delete a revision")
	}

	assert.OK(t, controller.Delete(ctx, "revision-1", metav1.DeleteOptions{}), "the controller cannot collect a revision")
}
