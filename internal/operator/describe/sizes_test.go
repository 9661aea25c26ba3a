// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheSizesOfAFleetAreCounted(t *testing.T) {
	p := assert.Value(payload.Decode(payload.KeyKubeletDropin, []byte("apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\nresources: {maxPods: {perCPU: 10}, "+
		"reservations: {kubeReserved: {memory: {tiers: [{upTo: 4Gi, percent: 25}, {percent: 20}]}, pid: {percent: 1}}}}\n")))(t)
	var machines []payload.Capacity
	for i := range 10 {
		machines = append(machines, payload.Capacity{CPU: 4000, Memory: 8 << 30})
		if i < 8 {
			machines = append(machines, payload.Capacity{CPU: 1000 * int64(8+i), Memory: 16 << 30})
		}
	}

	sizes := assert.Value(SizesOf(p, machines))(t)
	assert.NoDiff(t, cmp.Diff([]string{
		"kubeReserved.memory: 10 nodes: 1843Mi; 8 nodes: 3481Mi",
		"kubeReserved.pid: 18 nodes: known on the node only",
		"maxPods: 10 nodes: 40; 1 node: 80; 1 node: 90; 1 node: 100; 1 node: 110; 4 other values",
	}, sizes.Lines()))
	p = assert.Value(payload.Decode(payload.KeyKubeletDropin, []byte("apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\nresources: {"+
		"reservations: {kubeReserved: {memory: {plus: 9Gi}}}}\n")))(t)
	sizes, err := SizesOf(p, append(machines, payload.Capacity{}))
	want := "its rules have no possible result on 10 nodes: resources.reservations.kubeReserved.memory: is above the machine's memory, which is 8Gi"
	assert.That(t, err != nil && strings.HasPrefix(err.Error(), want), "got %v", err)
	assert.NoDiff(t, cmp.Diff([]string{"kubeReserved.memory: 8 nodes: 9Gi"}, sizes.Lines()))
	none, err := SizesOf(payload.Payload{}, machines)
	assert.That(t, none == nil && err == nil && len(none.Lines()) == 0, "got %v, %v", none, err)
}
