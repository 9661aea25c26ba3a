// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package query_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestPagesOfNodesAndNodeConfigsAreJoined(t *testing.T) {
	api := fakeapi.New(t)
	create := func(o client.Object) { assert.NoError(t, api.Create(t.Context(), o)) }
	for i := range fleet.PageSize + 5 {
		name := fmt.Sprintf("many-%04d", i)
		create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "many"}}})
		if i%2 == 0 {
			create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}

		create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name + "-gone"}})
	}

	some := labels.SelectorFromSet(labels.Set{"pool": "many"})
	i := 0
	for p, err := range query.Pairs(t.Context(), api, some) {
		want := fmt.Sprintf("many-%04d", i)
		assert.Must(t, err == nil && p.Node != nil && p.Node.Name == want && (p.Config != nil) == (i%2 == 0) && (p.Config == nil || p.Config.Name == want),
			"pair %d is %+v, %v", i, p, err)
		i++
	}

	assert.Equal(t, i, fleet.PageSize+5, "pairs of the selected nodes")
	gone := 0
	for p, err := range query.Pairs(t.Context(), api, labels.Everything()) {
		assert.NoError(t, err)
		if p.Node == nil {
			gone++
		}
	}

	assert.Equal(t, gone, fleet.PageSize+5, "NodeConfigs without a Node")
	errList := errors.New("the list fails")
	for failing := 1; failing <= 4; failing++ { // at least two pages of each
		left := failing
		c := interceptor.NewClient(api, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if left--; left == 0 {
				return errList
			}

			return c.List(ctx, list, opts...)
		}})
		var err error
		for _, e := range query.Pairs(t.Context(), c, some) {
			err = e
		}

		assert.Is(t, err, errList, "list", failing, "fails, but not all")
	}
}

// TestAPlanKnowsTheControlPlanesThatItDoesNotSelect: nobody else tells the CLI
// why a control plane waits.
func TestAPlanKnowsTheControlPlanesThatItDoesNotSelect(t *testing.T) {
	api := fakeapi.New(t)
	for _, name := range []string{"cp-1", "cp-2", "cp-3", "worker"} {
		labels := map[string]string{"pool": name}
		if name != "worker" {
			labels[fleet.LabelControlPlane] = ""
		}

		fakeapi.Add(api, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
		if name != "cp-3" {
			api.AddNodeConfig(name, nil, nil)
		}
	}

	others := func(c client.Reader, pool string) (string, error) {
		r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
		r.Spec.NodeSelector.MatchLabels = map[string]string{"pool": pool}
		f, err := query.Gather(t.Context(), c, r, nil)
		if err != nil {
			return "", err
		}

		var all []string
		for _, n := range f.Input.ControlPlanes {
			all = append(all, fmt.Sprintf("%s %t %t", n.Name, n.ControlPlane, n.HasConfig))
		}

		return strings.Join(all, ", "), nil
	}
	assert.Returns(t, "cp-2 true true, cp-3 true false", "a rollout with a control plane")(others(api, "cp-1"))
	assert.Returns(t, "", "a rollout of workers")(others(api, "worker"))
	broken := interceptor.NewClient(api, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if key.Name == "cp-2" {
			return errors.New("down")
		}

		return c.Get(ctx, key, o, opts...)
	}})
	assert.Error(t, assert.Err(others(broken, "cp-1")), "read NodeConfig cp-2: down")
}
