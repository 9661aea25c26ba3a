// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package survey says which configurations the kubelets of a cluster run, in which fields they differ, and what is risky about
// them. It needs nothing of evenkeel in the cluster.
//
// Read asks the kubelets, NewReport groups and judges the answers, which is pure, and Report.Judge asks another kubelet's binary.
// The package must not write to the API.
package survey

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// PoolLabels are the labels whose value is a node's pool, if the user names no other. The first that a node has counts.
var PoolLabels = []string{
	"karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name", "cloud.google.com/gke-nodepool",
	"kubernetes.azure.com/agentpool", "kops.k8s.io/instancegroup", "worker.gardener.cloud/pool", "node.deckhouse.io/group",
	"doks.digitalocean.com/node-pool", "node-restriction.kubernetes.io/pool",
}

// Node is what a Node object says.
type Node struct {
	Name, Kubelet, Pool, InstanceType, OS string

	podCIDRs []netip.Prefix
	own      []string // values that no other node has
	ready    bool
}

// NodeOf returns what a Node says. The value of the first of the labels that it has is its pool; without one, its role is.
func NodeOf(n *corev1.Node, poolLabels []string) Node {
	info := &n.Status.NodeInfo
	out := Node{Name: n.Name, Kubelet: info.KubeletVersion, OS: info.OSImage, ready: fleet.IsReady(n), own: []string{n.Name},
		InstanceType: cmp.Or(n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelInstanceType])}
	for _, label := range poolLabels {
		out.Pool = cmp.Or(out.Pool, n.Labels[label])
	}
	if _, is := n.Labels["node-role.kubernetes.io/control-plane"]; is && out.Pool == "" {
		out.Pool = "control-plane"
	}
	for _, a := range n.Status.Addresses {
		out.own = append(out.own, a.Address)
	}
	out.own = append(out.own, n.Spec.ProviderID, n.Spec.PodCIDR)
	for _, text := range n.Spec.PodCIDRs {
		out.own = append(out.own, text)
		if prefix, err := netip.ParsePrefix(text); err == nil {
			out.podCIDRs = append(out.podCIDRs, prefix)
		}
	}
	return out
}

// Answer is what a node's kubelet said: its configuration, or why it is not known.
type Answer struct {
	Node   Node
	Config string // JSON with sorted keys, in which Own replaces the node's own values; empty: not known
	Failed string // why it is not known, in words that are the same for many nodes
	Detail string // an error
}

// Own replaces the name, the addresses, the provider ID and the pod CIDR of a node in its configuration, so that they are no difference.
const Own = "(its own)"

// configOf returns the configuration of an Answer.
func configOf(n Node, fields map[string]any) (string, error) {
	fields = maps.Clone(payload.Canonical(fields))
	delete(fields, "apiVersion")
	delete(fields, "kind")
	for name, value := range fields {
		if text, ok := value.(string); ok && text != "" && slices.Contains(n.own, text) {
			fields[name] = Own
		}
	}
	text, err := json.Marshal(fields)
	return string(text), err
}

// Members are the nodes that something is true of.
type Members struct {
	Nodes         int            `json:"nodes"`
	Names         []string       `json:"names"` // in natural order
	Kubelets      map[string]int `json:"kubelets"`
	Pools         map[string]int `json:"pools"` // "" for nodes without one
	InstanceTypes map[string]int `json:"instanceTypes"`
}

func (n *Members) add(node Node) {
	if n.Nodes++; n.Nodes == 1 {
		n.Kubelets, n.Pools, n.InstanceTypes = map[string]int{}, map[string]int{}, map[string]int{}
	}
	n.Names = append(n.Names, node.Name)
	n.Kubelets[node.Kubelet]++
	n.Pools[node.Pool]++
	n.InstanceTypes[node.InstanceType]++
}

// Report is the output of `kubectl evenkeel survey -o json`.
type Report struct {
	Time    time.Time `json:"time"`
	Summary []string  `json:"summary"` // what matters most, in sentences
	Nodes   int       `json:"nodes"`
	Read    int       `json:"read"` // nodes whose configuration is known
	// Configurations are the distinct ones, the most common first.
	Configurations []*Configuration `json:"configurations"`
	// NotCompared are fields of which nearly every node has a value of its own.
	NotCompared []string `json:"notCompared,omitempty"`
	Judged      *Judged  `json:"judged,omitempty"`
	Risks       []*Risk  `json:"risks"`
	Unread      []*Group `json:"unread"`
}

// Configuration is what the kubelets of some nodes run.
type Configuration struct {
	Members
	Number int `json:"number"` // 1 is the most common one
	// Differences are the fields that the most common configuration has with another value, at most 100.
	Differences []Difference   `json:"differences,omitempty"`
	Verdict     *Verdict       `json:"verdict,omitempty"`
	Fields      map[string]any `json:"fields"` // of one of the nodes; secrets are masked

	fields map[string]any
}

// Difference is a field that differs from the most common configuration.
type Difference struct {
	Field      string `json:"field"`
	Value      string `json:"value"` // JSON, "unset" or "masked"
	MostCommon string `json:"mostCommon"`
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s, not %s", d.Field, d.Value, d.MostCommon)
}

// Group are nodes with a reason.
type Group struct {
	Members
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"` // of one of the nodes
}

const (
	// fewNodes is up to how many nodes all fields are compared.
	fewNodes       = 10
	maxDifferences = 100
)

// NewReport groups equal configurations, and finds risks.
func NewReport(answers []Answer, now time.Time) *Report {
	answers = slices.Clone(answers)
	slices.SortFunc(answers, func(a, b Answer) int { return printable.CompareNatural(a.Node.Name, b.Node.Name) })
	r := &Report{Time: now.UTC().Truncate(time.Second), Nodes: len(answers), Configurations: []*Configuration{}, Risks: []*Risk{}, Unread: []*Group{}}
	decoded := map[string]map[string]any{}
	values := map[string]map[string]bool{} // of each field
	for i := range answers {
		a := &answers[i]
		if a.Config == "" {
			continue
		}
		r.Read++
		if decoded[a.Config] != nil {
			continue
		}
		fields := decode(a.Config)
		decoded[a.Config] = fields
		for name, value := range fields {
			if values[name] == nil {
				values[name] = map[string]bool{}
			}
			values[name][keyOf(value)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if r.Read > fewNodes && len(values[name]) > r.Read/2 {
			r.NotCompared = append(r.NotCompared, name)
		}
	}
	keys, byKey, unread := map[string]string{}, map[string]*Configuration{}, map[string]*Group{}
	risks := riskFinder{now: now, byWords: map[string]*Risk{}}
	for _, a := range answers {
		fields := decoded[a.Config]
		risks.find(a.Node, fields)
		if fields == nil {
			if unread[a.Failed] == nil {
				unread[a.Failed] = &Group{Reason: a.Failed, Detail: a.Detail}
				r.Unread = append(r.Unread, unread[a.Failed])
			}
			unread[a.Failed].add(a.Node)
			continue
		}
		key, known := keys[a.Config]
		if !known {
			compared := maps.Clone(fields)
			for _, name := range r.NotCompared {
				delete(compared, name)
			}
			key = keyOf(compared)
			keys[a.Config] = key
		}
		if byKey[key] == nil {
			byKey[key] = &Configuration{fields: fields, Fields: payload.Mask(fields)}
			r.Configurations = append(r.Configurations, byKey[key])
		}
		byKey[key].add(a.Node)
	}
	r.Risks = append(r.Risks, risks.sorted()...)
	slices.SortStableFunc(r.Configurations, func(a, b *Configuration) int { return cmp.Compare(b.Nodes, a.Nodes) })
	slices.SortStableFunc(r.Unread, func(a, b *Group) int { return cmp.Compare(b.Nodes, a.Nodes) })
	for i, c := range r.Configurations {
		c.Number = i + 1
		c.Differences = r.differences(c.fields)
	}
	r.Summary = r.summary()
	return r
}

// keyOf returns a text that is equal for equal values. The API's form omits zeros, and a version that does not know a field too.
func keyOf(value any) string {
	text, _ := json.Marshal(component.WithoutZeros(value)) // cannot fail: it was decoded from JSON
	return string(text)
}

func decode(config string) (fields map[string]any) {
	d := json.NewDecoder(strings.NewReader(config))
	d.UseNumber()
	_ = d.Decode(&fields) // configOf has encoded it
	return fields
}

// differences returns the fields in which a configuration differs from the most common one.
func (r *Report) differences(fields map[string]any) (out []Difference) {
	zero := func(text string) bool {
		return slices.Contains([]string{"unset", "0", "false", `""`, "{}", "[]", "null"}, text)
	}
	for _, d := range payload.Diff(fields, r.Configurations[0].fields) {
		if zero(d.Value) && zero(d.Local) || slices.Contains(r.NotCompared, topField(d.Field)) || len(out) == maxDifferences {
			continue
		}
		out = append(out, Difference{Field: d.Field, Value: d.Value, MostCommon: d.Local})
	}
	return out
}

// topField returns the first part of the path of a field.
func topField(path string) string {
	if i := strings.IndexAny(path, ".["); i > 0 {
		return path[:i]
	}
	return path
}

// summary returns the first sentences, without those about verdicts.
func (r *Report) summary() []string {
	first := fmt.Sprintf("%s on %s", printable.Count(len(r.Configurations), "configuration"), printable.Count(r.Read, "node"))
	counts := map[string]int{} // of nodes, by the first part of a field's path
	for _, c := range r.Configurations {
		seen := map[string]bool{}
		for _, d := range c.Differences {
			if name := topField(d.Field); !seen[name] {
				seen[name] = true
				counts[name] += c.Nodes
			}
		}
	}
	var words []string
	for _, name := range printable.MostFirst(counts) {
		words = append(words, fmt.Sprintf("%s in %s", printable.Count(counts[name], "node"), name))
	}
	if len(words) > 0 {
		const most = 5
		first += "; different from the most common one: " + printable.First(words, most, ", ")
	}
	out := []string{first}
	if n := r.Nodes - r.Read; n > 0 {
		reasons := []string{}
		for _, g := range r.Unread {
			reasons = append(reasons, fmt.Sprintf("%d: %s", g.Nodes, g.Reason))
		}
		out = append(out, fmt.Sprintf("%s could not be read (%s)", printable.Count(n, "node"), printable.First(reasons, 3, "; ")))
	}
	return out
}

// Counts returns the values with their numbers, the most frequent first, such as "gpu (9)"; a single value alone.
func Counts(counts map[string]int) []string {
	var out []string
	for _, value := range printable.MostFirst(counts) {
		words := cmp.Or(value, "-")
		if len(counts) > 1 {
			words = fmt.Sprintf("%s (%d)", words, counts[value])
		}
		out = append(out, words)
	}
	return out
}
