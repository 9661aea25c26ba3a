// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestErrorsOfARestartingAPIServerPass(t *testing.T) {
	for out, want := range map[string]bool{
		`error: read rollout "all": the API server, or a proxy in front of it, refuses this user everything (HTTP 403 Forbidden)`: true,
		"note: x\nerror: read rollout \"all\": the API server cannot be reached: connection refused":                              true,
		`error: nodes is forbidden: User "kubernetes-admin" cannot list resource "nodes"`:                                         true,
		"The connection to the server 10.0.2.15:6443 was refused - did you specify the right host or port?":                       true,
		`Error from server (Forbidden): nodes "vm" is forbidden`:                                                                  true,
		"Error from server: etcdserver: leader changed":                                                                           true,
		"its installer ended with 1: the dry run of the kubelet: it did not exit within 15s and was killed":                       true,
		`error: the rollout "all" is Halted`:                                                                                      false,
		`Error from server (NotFound): nodes "x" not found`:                                                                       false,
		"error: unknown flag: --x": false,
	} {
		assert.Equal(t, passes.MatchString(out), want, out)
	}
}
