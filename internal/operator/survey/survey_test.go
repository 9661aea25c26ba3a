// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var today = time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)

// node returns what a Node of a pool says.
func node(name, kubelet, pool string) Node {
	return NodeOf(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool, corev1.LabelInstanceTypeStable: "m5." + pool}},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///" + name, PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: kubelet, OSImage: "Debian GNU/Linux 13"},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2." + name}}},
	}, []string{"other", "pool"})
}

// safe is a configuration without risks.
const safe = `{"maxPods": 110, "failSwapOn": true, "failCgroupV1": true, "rotateCertificates": true, "kubeReserved": {"cpu": "100m", "memory": "1Gi"},
	"authentication": {"anonymous": {"enabled": false}}, "authorization": {"mode": "Webhook"}}`

// said returns the answer of a kubelet that runs safe with other fields.
func said(t *testing.T, n Node, over string) Answer {
	t.Helper()
	decode := func(text string) (fields map[string]any) {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		assert.NoError(t, d.Decode(&fields))
		return fields
	}
	fields := decode(safe)
	maps.Copy(fields, decode(over))

	return Answer{Node: n, Config: assert.Value(configOf(n, fields))(t)}
}

func report(answers ...Answer) *Report {
	kept := keeper{distinct: map[string]*Config{}}
	for i := range answers {
		answers[i] = kept.keep(answers[i])
	}

	return NewReport(answers, today)
}

func TestEqualConfigurationsAreOneGroup(t *testing.T) {
	const version = "v1.37.2"
	workers := func(n int, over func(i int) string) (all []Answer) {
		for i := range n {
			all = append(all, said(t, node(fmt.Sprint(i), version, "workers"), over(i)))
		}

		return all
	}
	for _, tt := range []struct {
		name    string
		answers []Answer
		want    string // "nodes: differences"
		summary string
	}{
		{"equal", workers(3, func(int) string { return `{}` }), "3: ", "1 configuration on 3 nodes"},
		{"a node's own values", workers(3, func(i int) string {
			return fmt.Sprintf(`{"address": "192.0.2.%d", "providerID": "aws:///%[1]d", "podCIDR": "10.1.0.0/24", "apiVersion": "v%[1]d", "kind": "k%[1]d"}`, i)
		}), "3: ", "1 configuration on 3 nodes"},
		{"zeros and unset fields", workers(3, func(i int) string {
			return []string{`{}`, `{"podCIDR": ""}`, `{"podsPerCore": 0, "x": {"y": false}}`}[i]
		}),
			"3: ", "1 configuration on 3 nodes"},
		{"a few differ", workers(9, func(i int) string {
			return []string{`{}`, `{"evictionHard": {"memory.available": "1Gi", "nodefs.available": "5%"}}`, `{"maxPods": 250, "evictionHard": {"memory.available": "2Gi"}}`}[max(0, i-6)]
		}), `7: | 1: evictionHard[memory.available]="1Gi"/unset, evictionHard[nodefs.available]="5%"/unset | 1: evictionHard[memory.available]="2Gi"/unset, maxPods=250/110`,
			"3 configurations on 9 nodes; different from the most common one: 2 nodes in evictionHard, 1 node in maxPods"},
		{"a field of every node, and one of few", workers(20, func(i int) string {
			return fmt.Sprintf(`{"tlsCertFile": "/etc/node-%d.crt", "maxPods": %d}`, i, 110+i/18)
		}),
			"18: | 2: maxPods=111/110", "2 configurations on 20 nodes; different from the most common one: 2 nodes in maxPods"},
		{"secrets", workers(3, func(i int) string {
			return fmt.Sprintf(`{"staticPodURLHeader": {"Authorization": ["swordfish-%d"]}}`, i/2)
		}),
			"2: | 1: staticPodURLHeader.Authorization=masked/masked", "2 configurations on 3 nodes; different from the most common one: 1 node in staticPodURLHeader"},
		{"hostile names", workers(3, func(i int) string { return fmt.Sprintf(`{"": %d, ".": %[1]d, "a[b": {"": %[1]d}}`, i/2+1) }),
			"2: | 1: []=2/1, [.]=2/1, [a[b][]=2/1", "2 configurations on 3 nodes; different from the most common one: 1 node in [.], 1 node in [], 1 node in [a[b][]"},
	} {
		r := report(tt.answers...)
		var groups []string
		for _, c := range r.Configurations {
			var differences []string
			for _, d := range c.Differences {
				differences = append(differences, d.Field+"="+d.Value+"/"+d.MostCommon)
			}

			groups = append(groups, fmt.Sprintf("%d: %s", c.Nodes, strings.Join(differences, ", ")))
		}

		assert.Equal(t, strings.Join(groups, " | "), strings.ReplaceAll(tt.want, ": |", ":  |"), tt.name)
		assert.Equal(t, strings.Join(r.Summary, "\n"), tt.summary, tt.name)
		text := string(assert.Value(json.Marshal(r))(t)) + fmt.Sprint(r.Sections())
		assert.That(t, !strings.Contains(text, "swordfish"), "a secret is shown: %s", text)
	}
}

func TestFieldsThatOnlySomeVersionsHaveMakeNoGroup(t *testing.T) {
	older, newer := node("1", "v1.36.3", "a"), node("2", "v1.37.2", "a")
	r := report(said(t, older, `{}`), said(t, newer, `{"crashLoopBackOff": {"maxContainerRestartPeriod": "5m"}}`))
	assert.That(t, len(r.Configurations) == 1 && r.Configurations[0].Kubelets["v1.36.3"] == 1, "%+v", r.Configurations)
	assert.Equal(t, strings.Join(r.NotCompared, " "), "crashLoopBackOff")
	r = report(said(t, older, `{"registryBurst": 1}`), said(t, newer, `{"registryBurst": 2}`))
	assert.That(t, len(r.Configurations) == 2 && r.NotCompared == nil, "both have the field: %+v, %v", r.Configurations, r.NotCompared)
	set := said(t, node("3", "v1.37.2", "a"), `{"crashLoopBackOff": {"maxContainerRestartPeriod": "1m"}}`) // by a person
	r = report(said(t, older, `{}`), said(t, newer, `{"crashLoopBackOff": {"maxContainerRestartPeriod": "5m"}}`), set)
	assert.That(t, len(r.Configurations) == 3 && r.NotCompared == nil, "%+v, %v", r.Configurations, r.NotCompared)
}

func TestThePoolIsTheFirstLabelThatANodeHas(t *testing.T) {
	for want, labels := range map[string]map[string]string{
		"a": {"one": "a", "two": "b"}, "b": {"two": "b", fleet.LabelControlPlane: ""}, "control-plane": {fleet.LabelControlPlane: ""}, "": nil,
	} {
		n := NodeOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}, []string{"one", "two"})
		assert.Equal(t, n.Pool, want)
		fields := assert.Value(configOf(n, map[string]any{"providerID": ""}))(t).fields
		assert.Equal(t, fields["providerID"], any(""), "no value is the node's own")
	}
}

func TestRisksAreFoundWithTheirReason(t *testing.T) {
	old := node("1", "v1.34.4", "a")
	old.OS = "Ubuntu 20.04.6 LTS"
	small := func(cidr string) Node {
		return NodeOf(&corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{cidr}}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.2"}}}, nil)
	}
	now := node("1", "v1.37.2", "a")
	for _, tt := range []struct {
		node Node
		over string
		want string // "id: words" of each risk
	}{
		{now, `{}`, ""},
		{now, `{"authentication": {"anonymous": {"enabled": true}}, "authorization": {"mode": "AlwaysAllow"}}`,
			"anonymousAuthentication: anonymous authentication is on: requests without credentials have the rights of system:anonymous | alwaysAllow: authorization.mode is AlwaysAllow: everyone who can log in to the kubelet's port runs commands in every pod"},
		{now, `{"readOnlyPort": 10255}`, "readOnlyPort: the read-only port 10255 is open: it shows all pods to everyone who reaches it"},
		{now, `{"readOnlyPort": "x", "kubeReserved": 7, "failSwapOn": [], "systemReserved": {"cpu": {}, "memory": "lots"}}`, "noReservedCPU: no CPU is reserved for the system and the kubelet: pods can starve them"},
		{now, `{"rotateCertificates": false}`, "certificateRotation: certificate rotation is off: if the kubelet has a client certificate, the node becomes NotReady when that expires"},
		{now, `{"kubeReserved": {"memory": "0Mi"}, "reservedSystemCPUs": "0-1"}`, "noReservedMemory: no memory is reserved for the system and the kubelet: pods can make them run out of it"},
		{now, `{"failSwapOn": false}`, "failSwapOn: failSwapOn is false: the kubelet starts on a machine with swap (memorySwap.swapBehavior: NoSwap)"},
		{now, `{"failSwapOn": false, "memorySwap": {"swapBehavior": "LimitedSwap"}}`, "failSwapOn: failSwapOn is false: the kubelet starts on a machine with swap (memorySwap.swapBehavior: LimitedSwap)"},
		{now, `{"failCgroupV1": false}`, "cgroupV1: failCgroupV1 is false: the machine may run on cgroup v1, which kubelets give up"},
		{now, `{"rotateCertificates": null}`, "certificateRotation: certificate rotation is off: if the kubelet has a client certificate, the node becomes NotReady when that expires"},
		{now, `{"authentication": {}}`, ""},
		{old, `{}`, "unsupportedKubelet: upstream's support of kubelet 1.34 ended 2026-10-27 (kubernetes.io/releases, as of 2026-11-28)"},
		{old, `{"failCgroupV1": false}`, "unsupportedKubelet: upstream's support of kubelet 1.34 ended 2026-10-27 (kubernetes.io/releases, as of 2026-11-28) | cgroupV1: Ubuntu 20.04.6 LTS boots with cgroup v1, where kubelets from 1.35 on do not start by default"},
		{node("1", "v1.27.16-eks-1", "a"), `{}`, "unsupportedKubelet: upstream's support of kubelet 1.27 ended before 2026-02-28 (kubernetes.io/releases, as of 2026-11-28)"},
		{node("1", "v1.99.0", "a"), `{}`, ""},
		{node("1", "devel", "a"), `{}`, ""},
		{small("10.0.0.0/25"), `{"maxPods": 126}`, ""},
		{small("10.0.0.0/25"), `{"maxPods": 127}`, "maxPodsAbovePodCIDR: maxPods is 127, and a pod CIDR of /25 has addresses for 126 pods: more stay in ContainerCreating"},
		{small("10.0.0.1/32"), `{}`, "maxPodsAbovePodCIDR: maxPods is 110, and a pod CIDR of /32 has addresses for 0 pods: more stay in ContainerCreating"},
		{small("fd00::/64"), `{"maxPods": 1000}`, ""},
		{small("nonsense"), `{"maxPods": 1000}`, ""},
	} {
		var got []string
		for _, risk := range report(said(t, tt.node, tt.over)).Risks {
			got = append(got, risk.ID+": "+risk.Wrong)
		}

		assert.Equal(t, strings.Join(got, " | "), tt.want, tt.node.Kubelet, tt.over)
	}
}

func TestNodesThatWereNotReadAreNamedWithTheirReason(t *testing.T) {
	failed := Finding{ID: "timeout", Wrong: "no answer within 10s", Detail: "context deadline exceeded"}
	r := report(said(t, node("2", "v1.37.2", "a"), `{}`), Answer{Node: node("10", "v1.33.1", "b"), Failed: failed}, Answer{Node: node("9", "v1.37.2", "b"), Failed: failed})
	assert.Equal(t, strings.Join(r.Summary, "\n"), "1 configuration on 1 node\n2 nodes could not be read: no answer within 10s")
	assert.That(t, len(r.Unread) == 1 && strings.Join(r.Unread[0].Names, " ") == "9 10" && r.Unread[0].Pools["b"] == 2, "%+v", r.Unread)
	assert.That(t, len(r.Risks) == 1 && r.Risks[0].ID == unsupported && r.Risks[0].Names[0] == "10", "the version is known without an answer: %+v", r.Risks)
	other := Finding{ID: "refused", Wrong: "refused"}
	two := report(Answer{Node: node("1", "v1.37.2", "b"), Failed: other}, Answer{Node: node("9", "v1.37.2", "b"), Failed: failed}, Answer{Node: node("8", "v1.37.2", "b"), Failed: failed})
	assert.Equal(t, two.Summary[1], "3 nodes could not be read: the most frequent reason: no answer within 10s")
	none := report(Answer{Node: node("9", "v1.37.2", "b"), Failed: failed})
	assert.Equal(t, none.Summary[0], "0 configurations on 0 nodes")
}

func TestFieldsOfNearlyEveryNodeAndLongListsAreBounded(t *testing.T) {
	for distinct, want := range map[int]string{10: "", 11: "tlsCertFile"} { // of 20 nodes
		var answers []Answer
		for i := range 20 {
			answers = append(answers, said(t, node(fmt.Sprint(i), "v1.37.2", "a"), fmt.Sprintf(`{"tlsCertFile": "/%d"}`, i%distinct)))
		}

		assert.Equal(t, strings.Join(report(answers...).NotCompared, " "), want, distinct)
	}

	var many []string
	for i := range 101 {
		many = append(many, fmt.Sprintf(`"f%d": 1`, i))
	}

	r := report(said(t, node("1", "v1.37.2", "a"), `{"z": 1}`), said(t, node("2", "v1.37.2", "a"), `{"z": 1}`), said(t, node("3", "v1.37.2", "a"), "{"+strings.Join(many, ",")+"}"))
	assert.Equal(t, len(r.Configurations[1].Differences), 100)
}
