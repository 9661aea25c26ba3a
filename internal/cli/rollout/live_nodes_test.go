// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// paged is an API that has two pages of Nodes and of NodeConfigs, and tells what it was asked for.
func paged(asked *[]string, fail string) interceptor.Funcs {
	return interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		options := (&client.ListOptions{}).ApplyOptions(o)
		question := fmt.Sprintf("%T limit %d continue %q", list, options.Limit, options.Continue)
		*asked = append(*asked, question)
		if fail != "" && strings.Contains(question, fail) {
			return errors.New("no")
		}
		page := 1
		if options.Continue == "" {
			page = 0
			list.SetContinue("more")
		}
		switch list := list.(type) {
		case *metav1.PartialObjectMetadataList:
			list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{
				Name: []string{"node-a", "node-b"}[page], Labels: map[string]string{"topology.kubernetes.io/zone": []string{"a", "b"}[page]},
			}}}
		case *v1alpha1.NodeConfigList:
			nc := v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: []string{"node-b", "node-c"}[page], Generation: 2}}
			nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{RolloutRef: &v1alpha1.RolloutReference{Name: "workers", Revision: 4}}
			list.Items = []v1alpha1.NodeConfig{nc}
		}
		return nil
	}}
}

func TestTheLiveViewReadsPagesAndNodeMetadataOnly(t *testing.T) {
	var asked []string
	nodes := assert.Value(liveNodes(t.Context(), fakeAPI(t, paged(&asked, "")), moving()))(t)
	var got []string
	for _, n := range nodes {
		got = append(got, n.name+" "+n.zone+" "+n.state.String())
	}
	assert.NoDiff(t, cmp.Diff([]string{"node-a a Pending", "node-b b Assigned"}, got), "nodes")
	want := []string{
		`*v1.PartialObjectMetadataList limit 500 continue ""`, `*v1.PartialObjectMetadataList limit 500 continue "more"`,
		`*v1alpha1.NodeConfigList limit 500 continue ""`, `*v1alpha1.NodeConfigList limit 500 continue "more"`,
	}
	assert.NoDiff(t, cmp.Diff(want, asked), "lists")
}

func TestTheLiveViewShowsWhatDrainsWaitFor(t *testing.T) {
	r := moving()
	r.Status.DrainingNodes = []v1alpha1.DrainingNode{
		{Name: "node-a", Since: *ago(time.Minute), Message: "2 pods to evict"},
		{Name: "node-b", Since: *ago(time.Minute), Message: "its agent has not answered yet"}, // it has the revision, and is not released yet
	}
	var asked []string
	nodes := assert.Value(liveNodes(t.Context(), fakeAPI(t, paged(&asked, "")), r))(t)
	if n := nodes[0]; n.state != nodeDraining || n.why != "2 pods to evict" || !n.since.Equal(ago(time.Minute).Time) || !n.state.inFlight() {
		t.Errorf("node-a is %+v", n)
	}
	assert.That(t, nodes[1].state == nodeAssigned, "node-b is %+v", nodes[1])
}

func TestTheLiveViewShowsErrorsOfReadingNodes(t *testing.T) {
	for fail, want := range map[string]string{"Metadata": "list Nodes: no", "NodeConfig": "list NodeConfigs: no"} {
		var asked []string
		assert.Error(t, assert.Err(liveNodes(t.Context(), fakeAPI(t, paged(&asked, fail)), moving())), want)
	}
	r := moving()
	r.Spec.AllNodes = false
	assert.ErrorHas(t, assert.Err(liveNodes(t.Context(), fakeAPI(t, interceptor.Funcs{}), r)), "nodeSelector is empty")
}

func TestRolloutsAreListedInPages(t *testing.T) {
	var continued []string
	c := fakeAPI(t, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		options := (&client.ListOptions{}).ApplyOptions(o)
		continued = append(continued, fmt.Sprintf("%d %s", options.Limit, options.Continue))
		if options.Continue == "" {
			list.SetContinue("more")
		}
		return nil
	}})
	assert.NoError(t, assert.Err(query.Rollouts(t.Context(), c)))
	assert.NoError(t, assert.Err(query.RolloutNames(t.Context(), c)))
	assert.NoError(t, assert.Err(query.Labelled(t.Context(), c, "evenkeel-system", "workers")))
	if diff := cmp.Diff([]string{"500 ", "500 more", "500 ", "500 more", "500 ", "500 more"}, strings.Split(strings.Join(continued, ","), ",")); diff != "" {
		t.Error(diff)
	}
}
