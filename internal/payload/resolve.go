// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Capacity is what a machine has, as its kubelet measures it. 0: not known.
type Capacity struct {
	CPU              int64 // thousandths
	Memory           int64 // bytes
	EphemeralStorage int64 // bytes
	PIDs             int64
}

// CapacityOf returns the capacity in the status of a Node, which has no PIDs
// unless "pid" is in the list.
func CapacityOf(list corev1.ResourceList) Capacity {
	return Capacity{
		CPU: list.Cpu().MilliValue(), Memory: list.Memory().Value(), EphemeralStorage: list.StorageEphemeral().Value(),
		PIDs: list.Name("pid", resource.DecimalSI).Value(),
	}
}

// ParseCapacity parses text such as
// "cpu=8,memory=32Gi,ephemeral-storage=100Gi,pid=32768".
func ParseCapacity(text string) (Capacity, error) {
	list := corev1.ResourceList{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		q, err := ParseQuantity(value)
		known := slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "pid"}, name)
		_, twice := list[corev1.ResourceName(name)]
		if err != nil || !known || twice || q.Sign() <= 0 || q.CmpInt64(1<<56/1000) > 0 && name == "cpu" || q.CmpInt64(1<<56) > 0 {
			return Capacity{}, fmt.Errorf("%s: use resources and amounts, such as cpu=8,memory=32Gi,ephemeral-storage=100Gi,pid=32768",
				quoteShort(pair))
		}

		list[corev1.ResourceName(name)] = q
	}

	return CapacityOf(list), nil
}

// Resolved is a payload without rules: what a kubelet may receive.
type Resolved struct {
	Payload
	Upstream []byte         // configuration for the kubelet: Data, or the converted grouped form
	Fields   map[string]any // decoded Upstream; numbers are int64 or float64
	Values   []v1alpha1.ResolvedValue
	Digest   string // hex SHA-256 of Values without their reasons; empty if the payload has no rules
}

// ValueWords describes a value that depends on the machine, as
// "kubeReserved.memory: 1843Mi, from 25% of the first 4Gi".
func ValueWords(v v1alpha1.ResolvedValue) string { return v.Path + ": " + v.Value + ", from " + v.From }

// HasRules reports whether the payload has values that depend on the machine.
func (p *Payload) HasRules() bool { return len(p.rules) > 0 }

// Rules returns the upstream paths of the values that depend on the machine.
func (p *Payload) Rules() []string {
	var paths []string
	for _, r := range p.rules {
		paths = append(paths, r.path())
	}

	return paths
}

// Resolve returns the payload for a machine. The error is an *Error:
// ProblemCapacity if the capacity that a rule needs is not known, ProblemRule
// if the result is 0 or above the capacity.
func (p *Payload) Resolve(c Capacity) (Resolved, error) {
	values := make([]v1alpha1.ResolvedValue, 0, len(p.rules))
	maxPods, _ := integer(p.Fields[fieldMaxPods])
	for _, r := range p.rules { // that of maxPods is the first
		value, err := r.apply(c, maxPods)
		if err != nil {
			return Resolved{}, err
		}
		if r.of == pods {
			maxPods, _ = strconv.ParseInt(value, 10, 64) // at most MaxInt32
		}

		values = append(values, v1alpha1.ResolvedValue{Path: r.path(), Value: value, From: r.words})
	}

	return p.resolved(values)
}

// NeedsCapacity reports whether an error of Resolve says that the machine's
// capacity is not known.
func NeedsCapacity(err error) bool {
	return ProblemOf(err) == ProblemCapacity
}

// ResolveRecorded returns the payload with values that were resolved earlier.
// The error says that they are not those of this payload.
func (p *Payload) ResolveRecorded(values []v1alpha1.ResolvedValue) (Resolved, error) {
	if len(values) != len(p.rules) {
		return Resolved{}, fmt.Errorf("%d values were recorded for %d rules", len(values), len(p.rules))
	}

	for i, r := range p.rules {
		if values[i].Path != r.path() {
			return Resolved{}, fmt.Errorf("a value was recorded for %s, not for %s", quoteShort(values[i].Path), r.path())
		}
	}

	return p.resolved(values)
}

func (p *Payload) resolved(values []v1alpha1.ResolvedValue) (Resolved, error) {
	out := Resolved{Payload: *p, Upstream: p.upstream, Fields: p.Fields}
	if len(p.rules) == 0 {
		return out, nil
	}

	out.Values = values
	fields, digest := maps.Clone(p.Fields), sha256.New()
	for i, r := range p.rules {
		value := values[i].Value
		fmt.Fprintf(digest, "%s=%s\n", values[i].Path, value)
		if r.key == "" {
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil || n <= 0 {
				return Resolved{}, fmt.Errorf("%s: %s is not a number of pods", r.at, quoteShort(value))
			}

			fields[r.field] = n
			continue
		}

		inner, _ := fields[r.field].(map[string]any)
		inner = maps.Clone(inner)
		inner[r.key], fields[r.field] = value, inner
	}

	text, err := json.Marshal(fields)
	if err != nil {
		return Resolved{}, syntaxError(err)
	}
	if text, err = upstreamText(text); err != nil {
		return Resolved{}, err
	}

	out.Upstream, out.Fields, out.Digest = text, fields, hex.EncodeToString(digest.Sum(nil))

	return out, nil
}

// upstreamText returns the text of a converted configuration, which a person
// can read.
func upstreamText(text []byte) ([]byte, error) {
	if len(text) > MaxSize {
		return nil, newError(ProblemTooLarge, "larger than 1 MiB in the upstream form")
	}
	// Indenting a large nested text would multiply its size.
	if indented := (bytes.Buffer{}); len(text) <= maxIndented && json.Indent(&indented, text, "", "  ") == nil {
		text = indented.Bytes()
	}

	return text, nil
}
