// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var (
	rollouts = v1alpha1.GroupVersion.WithResource("nodeconfigrollouts")
	dryRun   = metav1.CreateOptions{FieldValidation: "Strict", DryRun: []string{metav1.DryRunAll}}
)

func rolloutsAs(t *testing.T, user string, groups ...string) dynamic.ResourceInterface {
	t.Helper()
	config := assert.Value(configFor(user, groups...))(t)
	config.QPS = -1
	return dynamic.NewForConfigOrDie(config).Resource(rollouts)
}

func rolloutsAsAdmin(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	return rolloutsAs(t, "admin", "system:masters")
}

// rollout is a valid one, but for the fields of the spec that the text sets;
// null leaves one out.
func rollout(name, spec string) *unstructured.Unstructured {
	o := parse(`metadata: {name: ` + name + `}
spec:
  nodeSelector: {matchLabels: {pool: workers}}
  template: {kubeletDropIn: {apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, maxPods: 100}}`)
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeConfigRollout"))
	into := o.Object["spec"].(map[string]any)
	maps.Copy(into, parse("spec: {" + spec + "}").Object["spec"].(map[string]any))
	maps.DeleteFunc(into, func(_ string, v any) bool { return v == nil })

	return o
}

// givenRollout creates a rollout as administrator and removes it when the test
// ends.
func givenRollout(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	admin := rolloutsAsAdmin(t)
	o := assert.Value(admin.Create(t.Context(), rollout(name, spec), metav1.CreateOptions{FieldValidation: "Strict"}))(t)
	t.Cleanup(func() {
		err := admin.Delete(context.Background(), name, metav1.DeleteOptions{})
		assert.That(t, err == nil || apierrors.IsNotFound(err), "%v", err)
	})

	return o
}

const upstream = `apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration`

func TestInvalidRolloutsAreRejectedWithAMessage(t *testing.T) {
	const (
		fromZero  = `must be a number from 0 to 1000000, without quotes, or a percentage from 0% to 100%`
		fromOne   = `must be a number from 1 to 1000000, without quotes, or a percentage from 1% to 100%`
		operators = `matchExpressions: operators are In and NotIn, with values, and Exists and DoesNotExist, without`
		duration  = `must be a duration greater than 0 in h, m and s, such as 10m or 1h30m; omit it to wait for an approval`
		trial     = `must be a duration greater than 0 and at most 168h in h, m and s, such as 30m or 1h30m`
	)
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"no selector":           {`nodeSelector: null`, []string{`spec.nodeSelector: `, `nodeSelector is empty and would select every node: give it labels, or set allNodes: true if every node is meant`}},
		"an empty selector":     {`nodeSelector: {}`, []string{`nodeSelector is empty and would select every node`}},
		"a selector of nothing": {`nodeSelector: {matchLabels: {}, matchExpressions: []}, allNodes: false`, []string{`nodeSelector is empty and would select every node`}},
		"all nodes and some":    {`allNodes: true`, []string{`spec.allNodes: `, `allNodes: true and a nodeSelector contradict each other: remove one`}},
		"an unknown operator":   {`nodeSelector: {matchExpressions: [{key: pool, operator: Gt, values: ["1"]}]}`, []string{`spec.nodeSelector: `, operators}},
		"In without values":     {`nodeSelector: {matchExpressions: [{key: pool, operator: In}]}`, []string{`spec.nodeSelector: `, operators}},
		"Exists with values":    {`nodeSelector: {matchExpressions: [{key: pool, operator: Exists, values: [a]}]}`, []string{`spec.nodeSelector: `, operators}},

		"no template":               {`template: null`, []string{`spec.template: Required value`}},
		"an empty template":         {`template: {}`, []string{`spec.template: `, `template must have exactly one of kubelet, kubeletDropIn and configMapRef, but has none`}},
		"two templates":             {`template: {kubelet: {` + upstream + `}, configMapRef: {namespace: ns, name: m}}`, []string{`but has more: remove all but one`}},
		"no kind":                   {`template: {kubelet: {apiVersion: kubelet.config.k8s.io/v1beta1}}`, []string{`spec.template.kubelet.kind: Required value`}},
		"no apiVersion":             {`template: {kubeletDropIn: {kind: KubeletConfiguration}}`, []string{`spec.template.kubeletDropIn.apiVersion: Required value`}},
		"another kind":              {`template: {kubelet: {apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeProxyConfiguration}}`, []string{`spec.template.kubelet: `, `kind must be KubeletConfiguration`}},
		"another apiVersion":        {`template: {kubeletDropIn: {apiVersion: kubelet.config.k8s.io/v1, kind: KubeletConfiguration}}`, []string{`spec.template.kubeletDropIn: `, `apiVersion must be kubelet.config.k8s.io/v1beta1 (upstream), or evenkeel.dev/v1alpha1 (grouped)`}},
		"a text for a template":     {`template: {kubelet: "maxPods: 3"}`, []string{`spec.template.kubelet: Invalid value: "string"`, `must be of type object`}},
		"a ConfigMap without name":  {`template: {configMapRef: {namespace: ns}}`, []string{`spec.template.configMapRef.name: Required value`}},
		"a ConfigMap with no names": {`template: {configMapRef: {namespace: "", name: ""}}`, []string{`namespace must be non-empty`, `name must be non-empty`}},
		"a ConfigMap elsewhere":     {`template: {configMapRef: {namespace: ../n, name: ../m}}`, []string{`configMapRef.namespace: Invalid value: "../n": namespace must be a DNS label`, `configMapRef.name: Invalid value: "../m": name must be a DNS name`}},
		"a ConfigMap with a digest": {`template: {configMapRef: {namespace: ns, name: m, sha256: a}}`, []string{`unknown field "spec.template.configMapRef.sha256"`}},

		"maxUnavailable of 150%":         {`strategy: {maxUnavailable: 150%}`, []string{`spec.strategy.maxUnavailable: `, fromZero}},
		"maxJoining of 150%":             {`strategy: {maxJoining: 150%}`, []string{`spec.strategy.maxJoining: `, fromZero}},
		"maxUnavailable in a word":       {`strategy: {maxUnavailable: ten}`, []string{`spec.strategy.maxUnavailable: `, fromZero}},
		"maxUnavailable as a text":       {`strategy: {maxUnavailable: "-1"}`, []string{`spec.strategy.maxUnavailable: `, fromZero}},
		"a quoted number":                {`strategy: {maxUnavailable: "5"}`, []string{`without quotes`}},
		"maxUnavailable below zero":      {`strategy: {maxUnavailable: -1}`, []string{`spec.strategy.maxUnavailable: `, fromZero}},
		"a percentage with a newline":    {`strategy: {maxUnavailable: "10%\n"}`, []string{fromZero}},
		"a percentage with a fraction":   {`strategy: {maxUnavailable: 2.5%}`, []string{fromZero}},
		"a percentage of a domain":       {`strategy: {topologyKey: zone, maxUnavailablePerDomain: 101%}`, []string{`spec.strategy.maxUnavailablePerDomain: `, fromZero}},
		"no failure allowed":             {`failurePolicy: {maxFailures: 0}`, []string{`spec.failurePolicy.maxFailures: `, fromOne}},
		"failures of 0%":                 {`failurePolicy: {maxFailures: 0%}`, []string{`spec.failurePolicy.maxFailures: `, fromOne}},
		"control planes without why":     {`strategy: {parallelControlPlanes: {reason: " "}}`, []string{`spec.strategy.parallelControlPlanes.reason: `, `must say why`}},
		"an unknown action":              {`failurePolicy: {action: Retry}`, []string{`spec.failurePolicy.action: Unsupported value: "Retry": supported values: "Pause", "Rollback"`}},
		"a rollback of nothing":          {`rollback: {maxUnavailable: 0}`, []string{`spec.rollback.maxUnavailable: `, fromOne}},
		"domains without a key":          {`strategy: {maxUnavailablePerDomain: 1}`, []string{`spec.strategy: `, `maxUnavailablePerDomain and maxDomainsInFlight need a topologyKey, such as topology.kubernetes.io/zone`}},
		"domains in flight without one":  {`strategy: {maxDomainsInFlight: 1, topologyKey: ""}`, []string{`need a topologyKey`}},
		"no domain in flight":            {`strategy: {maxDomainsInFlight: 0, topologyKey: zone}`, []string{`spec.strategy.maxDomainsInFlight in body should be greater than or equal to 1`}},
		"a topologyKey that is no label": {`strategy: {topologyKey: zone=a}`, []string{`spec.strategy.topologyKey: `, `topologyKey must be the key of a node label, such as topology.kubernetes.io/zone`}},

		"no steps":                   {`strategy: {steps: []}`, []string{`spec.strategy.steps`, `should have at least 1 items`}},
		"too many steps":             {`strategy: {steps: [` + strings.Repeat(`{nodes: 1},`, 31) + `]}`, []string{`spec.strategy.steps: Too many: 31: must have at most 30 items`}},
		"an empty step":              {`strategy: {steps: [{}]}`, []string{`spec.strategy.steps[0]: `, `a step must have exactly one of nodes and pause, but has neither`}},
		"two steps in one":           {`strategy: {steps: [{nodes: 1}, {nodes: 2, pause: {}}]}`, []string{`spec.strategy.steps[1]: `, `but has both: split it into two steps`}},
		"a step of no nodes":         {`strategy: {steps: [{nodes: 0}]}`, []string{`spec.strategy.steps[0].nodes: `, fromOne}},
		"a pause of nothing":         {`strategy: {steps: [{pause: {duration: 0s}}]}`, []string{`spec.strategy.steps[0].pause.duration: `, duration}},
		"a pause that is a number":   {`strategy: {steps: [{pause: {duration: "10"}}]}`, []string{`spec.strategy.steps[0].pause.duration: `, duration}},
		"a pause of a day":           {`strategy: {steps: [{pause: {duration: 1d}}]}`, []string{duration}},
		"a pause into the past":      {`strategy: {steps: [{pause: {duration: -1h}}]}`, []string{duration}},
		"a pause that would be long": {`strategy: {steps: [{pause: {duration: 999999h}}]}`, []string{duration}},

		"a trial of nothing":             {`trial: {configTrialDuration: 0s}`, []string{`spec.trial.configTrialDuration: `, trial}},
		"a trial that is a number":       {`trial: {configTrialDuration: "30"}`, []string{`spec.trial.configTrialDuration: `, trial}},
		"a trial of more than a week":    {`trial: {configTrialDuration: 168h1s}`, []string{`spec.trial.configTrialDuration: `, trial}},
		"a threshold below zero":         {`trial: {crashLoopThreshold: -1}`, []string{`spec.trial.crashLoopThreshold in body should be greater than or equal to 0`}},
		"a threshold that is never over": {`trial: {crashLoopThreshold: 11}`, []string{`spec.trial.crashLoopThreshold in body should be less than or equal to 10`}},
		"an unknown trial term":          {`trial: {duration: 30m}`, []string{`unknown field "spec.trial.duration"`}},

		// A value that no client can decode would make every list of rollouts
		// fail in the controller.
		"more nodes than are counted":   {`strategy: {maxUnavailable: 3000000000}`, []string{`spec.strategy.maxUnavailable: `, fromZero}},
		"more of a step than counted":   {`strategy: {steps: [{nodes: 3000000000}]}`, []string{`spec.strategy.steps[0].nodes: `, fromOne}},
		"a priority beyond its number":  {`priority: 3000000000`, []string{`spec.priority`}},
		"domains beyond their number":   {`strategy: {topologyKey: zone, maxDomainsInFlight: 3000000000}`, []string{`spec.strategy.maxDomainsInFlight`}},
		"an approval beyond its number": {`approval: {revision: 1, step: 3000000000}, strategy: {steps: [{nodes: 1}]}`, []string{`spec.approval.step`}},

		"an unknown newNodes":               {`newNodes: Latest`, []string{`spec.newNodes: Unsupported value: "Latest": supported values: "LastSucceeded", "Target"`}},
		"a soak below zero":                 {`soakSeconds: -1`, []string{`spec.soakSeconds in body should be greater than or equal to 0`}},
		"a soak of more than a week":        {`soakSeconds: 604801, progressDeadlineSeconds: 700000`, []string{`spec.soakSeconds in body should be less than or equal to 604800`}},
		"a soak that looks stuck":           {`soakSeconds: 7200`, []string{`spec.progressDeadlineSeconds: `, `progressDeadlineSeconds must be greater than soakSeconds, or soaking nodes would look stuck: raise progressDeadlineSeconds or lower soakSeconds`}},
		"a timeout that no node can keep":   {`nodeTimeoutSeconds: 9`, []string{`spec.nodeTimeoutSeconds: `, `must be at least 10: a node needs that long to try the configuration, restart its kubelet and renew its Lease`}},
		"a timeout of more than a week":     {`nodeTimeoutSeconds: 604801`, []string{`spec.nodeTimeoutSeconds in body should be less than or equal to 604800`}},
		"a deadline that nothing can keep":  {`progressDeadlineSeconds: 9`, []string{`spec.progressDeadlineSeconds: `, `must be at least 10: no node is faster`}},
		"a deadline of more than a year":    {`progressDeadlineSeconds: 31536001`, []string{`spec.progressDeadlineSeconds in body should be less than or equal to 31536000`}},
		"a history below zero":              {`revisionHistoryLimit: -1`, []string{`spec.revisionHistoryLimit in body should be greater than or equal to 0`}},
		"a history without end":             {`revisionHistoryLimit: 51`, []string{`spec.revisionHistoryLimit in body should be less than or equal to 50`}},
		"an approval of no revision":        {`approval: {revision: 0, step: -1}`, []string{`spec.approval.revision in body should be greater than or equal to 1`, `spec.approval.step in body should be greater than or equal to 0`}},
		"an approval of half a thing":       {`approval: {}`, []string{`spec.approval.revision: Required value`, `spec.approval.step: Required value`}},
		"an abort of no revision":           {`abort: {rollback: true}`, []string{`spec.abort.revision: Required value`}},
		"a retry that is the first attempt": {`retry: {revision: 1, attempt: 1}`, []string{`spec.retry.attempt: `, `must be at least 2, because the first attempt is 1: set it to status.attempt + 1`}},
		"a retry of a node twice":           {`retry: {revision: 1, attempt: 2, nodes: [a, a]}`, []string{`spec.retry.nodes[1]: Duplicate value: "a"`}},
		"a retry of a node without a name":  {`retry: {revision: 1, attempt: 2, nodes: [""]}`, []string{`spec.retry.nodes[0] in body should be at least 1 chars long`}},
		"a field that does not exist":       {`maxUnavailable: 1`, []string{`unknown field "spec.maxUnavailable"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rolloutsAsAdmin(t).Create(t.Context(), rollout("refused", test.spec), dryRun)
			wantInvalid(t, err, test.want...)
			assert.That(t, err == nil || !strings.Contains(err.Error(), "rule evaluation") && !strings.Contains(err.Error(), "failed rule"),
				"got %q, which is not in words", err)
		})
	}
}

func TestThePercentageOfAStepIsValidated(t *testing.T) {
	admin := rolloutsAsAdmin(t)
	for nodes, valid := range map[string]bool{
		"1%": true, "9%": true, "10%": true, "19%": true, "55%": true, "90%": true, "99%": true, "100%": true,
		"": false, "%": false, "0%": false, "00%": false, "01%": false, "101%": false, "150%": false, "-1%": false, "1": false,
		"10": false, "100": false, "ten": false, "1x%": false, "x1%": false, "1%%": false, " 1%": false, "1/%": false,
		"1:%": false, "1a": false, "9\x7f%": false, "５%": false, "10%\n": false, "1000%": false,
	} {
		o := rollout("percentages", "")
		steps := []any{map[string]any{"nodes": nodes}}
		assert.NoError(t, unstructured.SetNestedSlice(o.Object, steps, "spec", "strategy", "steps"))
		_, err := admin.Create(t.Context(), o, dryRun)
		assert.That(t, !valid || err == nil, "%q: %v", nodes, err)
		if !valid {
			wantRefused(t, err, http.StatusUnprocessableEntity, `spec.strategy.steps[0].nodes: `, `must be a number from 1 to 1000000, without quotes, or a percentage from 1% to 100%`)
		}
	}
}

func TestTheNameOfARolloutMustFitInALabel(t *testing.T) {
	const want = `metadata.name must have at most 63 characters and no dots, because revisions have it as a label: choose another name`
	for name, valid := range map[string]bool{
		strings.Repeat("a", v1alpha1.MaxRolloutNameLength): true, "4-workers": true, strings.Repeat("a", 64): false, "workers.v2": false,
	} {
		_, err := rolloutsAsAdmin(t).Create(t.Context(), rollout(name, ""), dryRun)
		assert.That(t, !valid || err == nil, "%s: %v", name, err)
		if !valid {
			wantRefused(t, err, http.StatusUnprocessableEntity, want)
		}
	}
}

func TestARolloutIsStoredWithItsDefaults(t *testing.T) {
	for name, test := range map[string]struct{ spec, want string }{
		"nothing said": {``, `newNodes: LastSucceeded, strategy: {maxUnavailable: 10%}, nodeTimeoutSeconds: 900, progressDeadlineSeconds: 3600,
			failurePolicy: {maxFailures: 1, action: Pause}, rollback: {maxUnavailable: 25%}, revisionHistoryLimit: 10`},
		"everything said": {`newNodes: Target, strategy: {maxUnavailable: 0, topologyKey: topology.kubernetes.io/zone, maxUnavailablePerDomain: 0%,
				maxDomainsInFlight: 1, canarySelector: {example.com/canary: "yes"},
				steps: [{nodes: 1}, {pause: {duration: 1h30m}}, {nodes: 10%}, {pause: {}}, {nodes: 100%}]},
			soakSeconds: 9, nodeTimeoutSeconds: 10, progressDeadlineSeconds: 10, failurePolicy: {maxFailures: 2%, action: Rollback},
			rollback: {maxUnavailable: 100%}, revisionHistoryLimit: 0, paused: true, frozen: true, priority: -1,
			approval: {revision: 4, step: 4}, abort: {revision: 4, rollback: true}, retry: {revision: 4, attempt: 2, nodes: [a, b.c]}`, ``},
		"every node, and a ConfigMap": {`allNodes: true, nodeSelector: {}, template: {configMapRef: {namespace: evenkeel-system, name: m.m}}`,
			`newNodes: LastSucceeded, strategy: {maxUnavailable: 10%}, nodeTimeoutSeconds: 900, progressDeadlineSeconds: 3600,
			failurePolicy: {maxFailures: 1, action: Pause}, rollback: {maxUnavailable: 25%}, revisionHistoryLimit: 10`},
		"what is unknown to evenkeel in a configuration": {`template: {kubelet: {apiVersion: evenkeel.dev/v1alpha1, kind: KubeletConfiguration,
				resources: {maxPods: 1}, "evictionHard": {memory.available: "1"}, nothing: null, metadata: {labels: {a: b}}}},
			newNodes: Target, strategy: {maxUnavailable: 1}, nodeTimeoutSeconds: 900, progressDeadlineSeconds: 3600,
			failurePolicy: {maxFailures: 1, action: Pause}, rollback: {maxUnavailable: 1}, revisionHistoryLimit: 10`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			want := rollout("valid", test.spec)
			maps.Copy(want.Object["spec"].(map[string]any), parse("spec: {" + test.want + "}").Object["spec"].(map[string]any))
			o := assert.Value(rolloutsAsAdmin(t).Create(t.Context(), rollout("valid", test.spec), dryRun))(t)
			assert.NoDiff(t, cmp.Diff(want.Object["spec"], o.Object["spec"]), "spec (- want, + got)")
		})
	}
}
