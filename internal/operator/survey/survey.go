// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package survey says which configurations the kubelets of a cluster run, in
// which fields they differ, and what is risky about them. It needs nothing of
// evenkeel in the cluster.
//
// Read asks the kubelets, NewReport groups and judges the answers, which is
// pure, and Report.Judge asks another kubelet's binary. The package must not
// write to the API.
package survey

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// PoolLabels are the labels whose value is a node's pool, if the user names no
// other. The first that a node has counts.
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

// NodeOf returns what a Node says. The value of the first of the labels that it
// has is its pool; without one, its role is.
func NodeOf(n *corev1.Node, poolLabels []string) Node {
	info := &n.Status.NodeInfo
	out := Node{Name: n.Name, Kubelet: info.KubeletVersion, OS: info.OSImage, ready: fleet.IsReady(n), own: []string{n.Name},
		InstanceType: cmp.Or(n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelInstanceType])}
	for _, label := range poolLabels {
		out.Pool = cmp.Or(out.Pool, n.Labels[label])
	}
	if _, is := n.Labels[fleet.LabelControlPlane]; is && out.Pool == "" {
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

// Config is the effective configuration of a kubelet.
type Config struct {
	fields map[string]any // in which Own replaces the node's own values
	text   string         // the same as JSON with sorted keys
}

// Answer is what a node's kubelet said: its configuration, or why it is not
// known. Equal configurations are one Config.
type Answer struct {
	Node   Node
	Config *Config // nil: not known
	Failed Finding
}

// Own replaces the name, the addresses, the provider ID and the pod CIDR of a
// node in its configuration, so that they are no difference.
const Own = "(its own)"

// configOf returns the Config for a kubelet's answer, which it may change.
func configOf(n Node, fields map[string]any) (*Config, error) {
	fields = payload.Canonical(fields)
	delete(fields, "apiVersion")
	delete(fields, "kind")
	for name, value := range fields {
		if text, ok := value.(string); ok && text != "" && slices.Contains(n.own, text) {
			fields[name] = Own
		}
	}

	text, err := json.Marshal(fields)

	return &Config{fields, string(text)}, err
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
	// NotCompared are fields of which nearly every node has a value of its own,
	// or which only some versions have, with one value.
	NotCompared []string   `json:"notCompared,omitempty"`
	Judged      *Judged    `json:"judged,omitempty"`
	Risks       []*Finding `json:"risks"`
	Unread      []*Finding `json:"unread"`
}

// Configuration is what the kubelets of some nodes run.
type Configuration struct {
	Members
	Number int `json:"number"` // 1 is the most common one
	// Differences are the fields that the most common configuration has with
	// another value, at most 100.
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

// Finding is a risk, or why nodes could not be read. The words can have numbers
// of the nodes; there is one for each.
type Finding struct {
	Members
	ID     string `json:"id"`
	Wrong  string `json:"wrong"`
	Do     string `json:"do,omitempty"`
	Detail string `json:"detail,omitempty"` // the error of one of the nodes

	order int
}

// findings are Findings by their words.
type findings map[string]*Finding

func (f findings) add(n Node, like Finding) {
	if f[like.Wrong] == nil {
		f[like.Wrong] = &like
	}

	f[like.Wrong].Members.add(n)
}

func (f findings) sorted() []*Finding {
	return append([]*Finding{}, slices.SortedFunc(maps.Values(f), func(a, b *Finding) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Wrong, b.Wrong))
	})...)
}

// fewNodes is up to how many nodes the fields are compared of which nearly
// every node has its own value.
const fewNodes = 10

// NewReport groups equal configurations, and finds risks.
func NewReport(answers []Answer, now time.Time) *Report {
	answers = slices.Clone(answers)
	slices.SortFunc(answers, func(a, b Answer) int { return printable.CompareNatural(a.Node.Name, b.Node.Name) })
	r := &Report{Time: now.UTC().Truncate(time.Second), Nodes: len(answers), Configurations: []*Configuration{}}
	r.NotCompared = notCompared(answers)
	byConfig, byKey := map[*Config]*Configuration{}, map[string]*Configuration{}
	risks, unread := findings{}, findings{}
	for _, a := range answers {
		if a.Config == nil {
			risks.check(a.Node, nil, now)
			unread.add(a.Node, a.Failed)
			continue
		}

		r.Read++
		fields := a.Config.fields
		risks.check(a.Node, fields, now)
		if byConfig[a.Config] == nil {
			compared := maps.Clone(fields)
			for _, name := range r.NotCompared {
				delete(compared, name)
			}

			key := keyOf(compared)
			if byKey[key] == nil {
				byKey[key] = &Configuration{fields: fields, Fields: payload.Mask(fields)}
				r.Configurations = append(r.Configurations, byKey[key])
			}

			byConfig[a.Config] = byKey[key]
		}

		byConfig[a.Config].add(a.Node)
	}

	r.Risks, r.Unread = risks.sorted(), unread.sorted()
	slices.SortStableFunc(r.Configurations, func(a, b *Configuration) int { return cmp.Compare(b.Nodes, a.Nodes) })
	for i, c := range r.Configurations {
		c.Number = i + 1
		c.Differences = r.differences(c.fields)
	}

	r.Summary = r.summary()

	return r
}

// keyOf returns a text that is equal for equal values. The API's form omits
// zeros, and a version that does not know a field too.
func keyOf(value any) string {
	text, _ := json.Marshal(component.WithoutZeros(value)) // cannot fail: it was decoded from JSON
	return string(text)
}

// notCompared returns the fields that would make a group of nearly every node,
// or of every version.
func notCompared(answers []Answer) (fields []string) {
	read, minors := 0, map[int]bool{}
	configs, names := map[*Config]map[int]bool{}, map[string]bool{} // the minor versions that have a configuration
	for _, a := range answers {
		if a.Config == nil {
			continue
		}

		if configs[a.Config] == nil {
			configs[a.Config] = map[int]bool{}
			for name := range a.Config.fields {
				names[name] = true
			}
		}

		read++
		minors[minorOf(a.Node)], configs[a.Config][minorOf(a.Node)] = true, true
	}

	for _, name := range slices.Sorted(maps.Keys(names)) {
		values, ofMinors := map[string]bool{}, map[string]bool{}
		for c, have := range configs {
			value := keyOf(c.fields[name])
			values[value] = true
			for minor := range have {
				ofMinors[fmt.Sprint(minor, value)] = true
			}
		}

		ofVersions := len(values) == 2 && values["null"] && len(ofMinors) == len(minors)
		if ofVersions || read > fewNodes && len(values) > read/2 {
			fields = append(fields, name)
		}
	}

	return fields
}

// differences returns the fields in which a configuration differs from the most
// common one.
func (r *Report) differences(fields map[string]any) (out []Difference) {
	zero := func(text string) bool {
		return slices.Contains([]string{"unset", "0", "false", `""`, "{}", "[]", "null"}, text)
	}
	for _, d := range payload.Diff(fields, r.Configurations[0].fields) {
		if zero(d.Value) && zero(d.Local) || slices.Contains(r.NotCompared, payload.TopField(d.Field)) {
			continue
		}

		out = append(out, Difference{Field: d.Field, Value: d.Value, MostCommon: d.Local})
	}

	return out[:min(len(out), 100)]
}

// summary returns the first sentences, without those about verdicts.
func (r *Report) summary() []string {
	first := fmt.Sprintf("%s on %s", printable.Count(len(r.Configurations), "configuration"), printable.Count(r.Read, "node"))
	counts := map[string]int{} // of nodes, by the first part of a field's path
	for _, c := range r.Configurations {
		seen := map[string]bool{}
		for _, d := range c.Differences {
			if name := payload.TopField(d.Field); !seen[name] {
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
		most := map[bool]string{true: "the most frequent reason: "}[len(r.Unread) > 1]
		out = append(out, fmt.Sprintf("%s could not be read: %s%s", printable.Count(n, "node"), most, r.Unread[0].Wrong))
	}

	return out
}
