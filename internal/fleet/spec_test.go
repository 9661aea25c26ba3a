// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubelet "k8s.io/kubelet/pkg/apis"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/rollout"
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

func TestCanariesAreSelectedByTheirLabels(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"canary": "yes", "zone": "a"}}}
	for name, test := range map[string]struct {
		selector map[string]string
		want     bool
	}{
		"the labels match":     {map[string]string{"canary": "yes", "zone": "a"}, true},
		"one label differs":    {map[string]string{"canary": "yes", "zone": "b"}, false},
		"one label is missing": {map[string]string{"canary": "yes", "rack": "a"}, false},
		"no selector":          {nil, false},
	} {
		r := &v1alpha1.NodeConfigRollout{}
		r.Spec.AllNodes, r.Spec.Strategy.CanarySelector = true, test.selector
		var n rollout.Node
		assert.Value(SelectionOf(r))(t).Place(&n, node, "")
		assert.Equal(t, n.Canary, test.want, name)
	}
}

func TestSelfSelectableSelectorsGetAWarning(t *testing.T) {
	const restricted = "node-restriction.kubernetes.io/pool"
	for name, test := range map[string]struct {
		spec v1alpha1.NodeConfigRolloutSpec
		want string
	}{
		"its own label":             {v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{"pool": "a"}}}}, "(pool)"},
		"its own, by expression":    {v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{"pool": "a"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Exists"}, {Key: "pool", Operator: "Exists"}}}}}, "(pool, zone)"},
		"a restricted one":          {v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{restricted: "a"}}}}, ""},
		"a restricted one and more": {v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{"pool": "a"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: restricted, Operator: "Exists"}}}}}, ""},
		"all nodes":                 {v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}}, ""},
	} {
		got := SelfSelectionWarning(&test.spec)
		assert.That(t, (got == "") == (test.want == "") && strings.Contains(got, test.want), "%s: %q, want %q", name, got, test.want)
	}
}

// gatedRollout is a rollout with one gate.
func gatedRollout(change func(*v1alpha1.RolloutGate)) *v1alpha1.NodeConfigRollout {
	g := v1alpha1.RolloutGate{Name: "errors", Prometheus: v1alpha1.PrometheusGate{Server: "main", Query: "up", Passes: "< 0.01"}}
	change(&g)
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}}}
	r.Spec.Strategy.Gates = []v1alpha1.RolloutGate{g}

	return r
}

func TestGatesHaveDefaults(t *testing.T) {
	least := v1alpha1.RolloutGate{
		Name: "errors", Prometheus: v1alpha1.PrometheusGate{Server: "main", Query: "up", Passes: "< 0.01"},
		Interval: &metav1.Duration{Duration: time.Minute}, Failures: 1,
	}
	all := v1alpha1.RolloutGate{
		Name: "errors", Prometheus: v1alpha1.PrometheusGate{Server: "other", Query: "up", Passes: ">=-1.5e3"}, Interval: &metav1.Duration{Duration: time.Hour},
		Every: v1alpha1.GateAlways, Failures: 3,
	}
	s, _, err := Complete(gatedRollout(func(*v1alpha1.RolloutGate) {}))
	assert.NoError(t, err)
	assert.NoDiff(t, cmp.Diff([]v1alpha1.RolloutGate{least}, s.Strategy.Gates))
	s, _, err = Complete(gatedRollout(func(g *v1alpha1.RolloutGate) { *g = all }))
	assert.NoError(t, err)
	assert.NoDiff(t, cmp.Diff([]v1alpha1.RolloutGate{all}, s.Strategy.Gates))
}

func TestInvalidGatesAreRefused(t *testing.T) {
	for _, passes := range []string{"", "0.01", "< ", "<  1", "=> 1", "< 1.", "< .5", "< 1e9999", "< NaN", "< 1 or vector(0)", "=1", "< 0x10", "< 1e999"} {
		_, _, err := Complete(gatedRollout(func(g *v1alpha1.RolloutGate) { g.Prometheus.Passes = passes }))
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), "spec.strategy.gates[0].prometheus.passes: "), "%q: got %v", passes, err)
	}

	for _, interval := range []time.Duration{0, 9 * time.Second, 25 * time.Hour, -time.Minute} {
		_, _, err := Complete(gatedRollout(func(g *v1alpha1.RolloutGate) { g.Interval = &metav1.Duration{Duration: interval} }))
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), "spec.strategy.gates[0].interval must be from 10s to 24h0m0s"),
			"%s: got %v", interval, err)
	}
}

func TestAGateAtAnUnknownServerIsInvalid(t *testing.T) {
	published := func(servers ...string) v1alpha1.RolloutController {
		r := &v1alpha1.NodeConfigRollout{}
		r.Status.Controller = &v1alpha1.RolloutController{Namespace: "n", PrometheusServers: servers}
		return SettingsOf(r, nil)
	}
	for _, test := range []struct {
		name     string
		settings v1alpha1.RolloutController
		want     string
	}{
		{"known", published("a", "main"), ""},
		{"not published", DefaultSettings, ""},
		{"none", published(), "spec.strategy.gates[0].prometheus.server: the controller has no Prometheus server: start it with --prometheus-server=main=URL"},
		{"others", published("a", "b"), `spec.strategy.gates[0].prometheus.server: the controller has no Prometheus server "main", only a, b: name one of these, or start it with --prometheus-server=main=URL`},
	} {
		r := gatedRollout(func(*v1alpha1.RolloutGate) {})
		p := Build(Objects{Rollout: r, Template: Template{Content: payload.Payload{SHA256: digest("x")}}, Settings: test.settings, Now: then})
		assert.Equal(t, p.Invalid, test.want, test.name)
	}
}

func TestTheDocumentedGatesAreValid(t *testing.T) {
	page := assert.Value(os.ReadFile("../../docs/rollouts.md"))(t)
	_, block, _ := strings.Cut(string(page), "```yaml\ngates:\n")
	block, _, _ = strings.Cut(block, "```")
	r := gatedRollout(func(*v1alpha1.RolloutGate) {})
	assert.NoError(t, yaml.UnmarshalStrict([]byte("gates:\n"+block), &r.Spec.Strategy))
	s, _, err := Complete(r)
	assert.That(t, err == nil && len(s.Strategy.Gates) >= 5, "got %+v, %v", s.Strategy.Gates, err)
}

// The controller refuses what the admission policy would refuse if it were
// there.
func TestStepsThatGoDownAreRefused(t *testing.T) {
	r := gatedRollout(func(*v1alpha1.RolloutGate) {})
	r.Spec.Strategy.Steps = []v1alpha1.RolloutStep{{Nodes: new(intstr.FromInt32(2))}, {Nodes: new(intstr.FromInt32(1))}}
	p := Build(Objects{Rollout: r, Settings: DefaultSettings, Now: then})
	assert.That(t, strings.Contains(p.Invalid, "spec.strategy.steps must not go down, but go 2, 1"), "invalid: %q", p.Invalid)
}
