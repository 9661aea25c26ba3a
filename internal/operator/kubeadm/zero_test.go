// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func tree(t *testing.T, text string) map[string]any {
	t.Helper()
	return assert.Value(Fields([]byte(text)))(t)
}

func TestOptionalZeroValuesStay(t *testing.T) {
	text := "{eventRecordQPS: 0, registerNode: false, resolvConf: '', tracing: {}, maxPods: 5, syncFrequency: 0s, memorySwap: {swapBehavior: NoSwap}, logging: {verbosity: 0, format: json}, crashLoopBackOff: {}}"
	want := "{eventRecordQPS: 0, registerNode: false, resolvConf: '', tracing: {}, maxPods: 5, memorySwap: {swapBehavior: NoSwap}, logging: {format: json}}"
	fields := tree(t, text)
	assert.NoDiff(t, cmp.Diff(tree(t, want), WithoutZeroes(Components()[0], fields)))
	assert.NoDiff(t, cmp.Diff(tree(t, text), fields), "what was given changed")
}

func TestAnOverlayResetsOnlyWhatTheUserResets(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for _, tt := range []struct {
		name, now, next, want string
		action                Action
	}{
		{"kept, of a kubeadm", head + "maxPods: 5\nsyncFrequency: 0s\n", head + "maxPods: 5\nsyncFrequency: 0s\n", head + "maxPods: 5\n", Keep},
		{"given, as somebody edited what kubeadm wrote", head + "syncFrequency: 0s\nmemorySwap: {}\n", head + "maxPods: 5\nsyncFrequency: 0s\nmemorySwap: {}\n", head + "maxPods: 5\n", Replace},
		{"given, to take back a value", head + "shutdownGracePeriod: 30s\n", head + "shutdownGracePeriod: 0s\n", head + "shutdownGracePeriod: 0s\n", Replace},
		{"given, where there is none", "", head + "shutdownGracePeriod: 0s\n", head + "shutdownGracePeriod: 0s\n", Replace},
		{"given, with comments", head, "# ours\n" + head, "# ours\n" + head, Replace},
	} {
		change := Change{Component: Components()[0], Current: []byte(tt.now), Next: []byte(tt.next), Action: tt.action}
		got, err := change.Overlay()
		assert.That(t, err == nil && string(got) == tt.want, "%s: %s, %v; want %s", tt.name, got, err, tt.want)
	}

	assert.ErrorHas(t, assert.Err((&Change{Component: Components()[0], Next: []byte("a: b: c")}).Overlay()), "mapping values are not allowed")
}
