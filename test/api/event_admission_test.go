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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestNodesWriteEventsAboutThemselvesOnly writes Events as a node and as the
// controller, in both groups, and changes one of each.
func TestNodesWriteEventsAboutThemselvesOnly(t *testing.T) {
	client := func(user string, groups ...string) kubernetes.Interface {
		return kubernetes.NewForConfigOrDie(assert.Value(configFor(user, groups...))(t))
	}
	node := client("system:node:one", "system:nodes")
	controller := client("system:serviceaccount:evenkeel-system:evenkeel-controller", "system:serviceaccounts:evenkeel-system")
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
