// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package query_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestPagesOfNodesAndNodeConfigsAreJoined(t *testing.T) {
	api := fakeapi.New(t)
	create := func(o client.Object) {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
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
		if err != nil || p.Node == nil || p.Node.Name != want || (p.Config != nil) != (i%2 == 0) || p.Config != nil && p.Config.Name != want {
			t.Fatalf("pair %d is %+v, %v", i, p, err)
		}

		i++
	}

	if i != fleet.PageSize+5 {
		t.Errorf("%d pairs of the selected nodes", i)
	}

	gone := 0
	for p, err := range query.Pairs(t.Context(), api, labels.Everything()) {
		if err != nil {
			t.Fatal(err)
		}
		if p.Node == nil {
			gone++
		}
	}

	if gone != fleet.PageSize+5 {
		t.Errorf("%d NodeConfigs without a Node", gone)
	}

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
		if !errors.Is(err, errList) {
			t.Errorf("list %d fails, but not all: %v", failing, err)
		}
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

		objects := []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}}
		if name != "cp-3" {
			objects = append(objects, &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}

		for _, o := range objects {
			if err := api.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}

	others := func(c client.Reader, pool string) (names []string, err error) {
		r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
		r.Spec.NodeSelector.MatchLabels = map[string]string{"pool": pool}
		f, err := query.Gather(t.Context(), c, r, nil)
		if err != nil {
			return nil, err
		}

		for _, n := range f.Input.ControlPlanes {
			names = append(names, fmt.Sprint(n.Name, n.ControlPlane, n.HasConfig))
		}

		return names, nil
	}
	if got, err := others(api, "cp-1"); fmt.Sprint(got, err) != "[cp-2true true cp-3true false] <nil>" {
		t.Errorf("a rollout with a control plane knows %v, %v", got, err)
	}
	if got, err := others(api, "worker"); fmt.Sprint(got, err) != "[] <nil>" {
		t.Errorf("a rollout of workers knows %v, %v", got, err)
	}

	broken := interceptor.NewClient(api, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if key.Name == "cp-2" {
			return errors.New("down")
		}

		return c.Get(ctx, key, o, opts...)
	}})
	if _, err := others(broken, "cp-1"); err == nil || err.Error() != "read NodeConfig cp-2: down" {
		t.Errorf("without an answer: %v", err)
	}
}
