// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestNodeMaySetMatchesNodeRestriction(t *testing.T) {
	for _, key := range kubelet.KubeletLabels() {
		assert.That(t, nodeMaySet(key), "a node may set %s", key)
	}

	for _, namespace := range kubelet.KubeletLabelNamespaces() {
		for _, key := range []string{namespace + "/x", "a." + namespace + "/x"} {
			assert.That(t, nodeMaySet(key), "a node may set %s", key)
		}
	}

	for key, want := range map[string]bool{
		"pool": true, "example.com/pool": true, "notkubernetes.io/pool": true, "kubernetes.io": true,
		"node-restriction.kubernetes.io/pool": false, "example.com.node-restriction.kubernetes.io/pool": false,
		"node-role.kubernetes.io/worker": false, "kubernetes.io/anything": false, "k8s.io/x": false, "x.k8s.io/y": false,
		"topology.kubernetes.io/rack": false, "xnode.kubernetes.io/x": false,
	} {
		assert.Equal(t, nodeMaySet(key), want, key)
	}
}

func TestSelfSelectableSelectorsGetAWarning(t *testing.T) {
	exists := func(keys ...string) (all []metav1.LabelSelectorRequirement) {
		for _, key := range keys {
			all = append(all, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
		}

		return all
	}
	const restricted = "node-restriction.kubernetes.io/pool"
	for name, test := range map[string]struct {
		spec v1alpha1.NodeConfigRolloutSpec
		want string
	}{
		"its own label":             {v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{"pool": "a"}}}}, "(pool)"},
		"its own, by expression":    {v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{"pool": "a"}, MatchExpressions: exists("zone", "pool")}}}, "(pool, zone)"},
		"a restricted one":          {v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{restricted: "a"}}}}, ""},
		"a restricted one and more": {v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{"pool": "a"}, MatchExpressions: exists(restricted)}}}, ""},
		"all nodes":                 {v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}}, ""},
	} {
		got := SelfSelectionWarning(&test.spec)
		assert.That(t, (got == "") == (test.want == "") && strings.Contains(got, test.want), "%s: %q, want %q", name, got, test.want)
	}
}
