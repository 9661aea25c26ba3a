// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestWhichLockAnAgentContendsForAndAsWhat(t *testing.T) {
	for _, c := range []struct {
		name    string
		o       Flags
		kubelet []string
		want    Lock
	}{
		{"none", Flags{}, nil, Lock{"--lock-file", "", false, v1alpha1.RunModeHost}},
		{"the agent's", Flags{LockFile: "/run/a"}, nil, Lock{"--lock-file", "/run/a", false, v1alpha1.RunModeSelfHosted}},
		{"the agent's, until asked", Flags{LockFile: "/run/a", Bootstrap: true}, nil, Lock{"--lock-file", "/run/a", true, v1alpha1.RunModeBootstrap}},
		{"the kubelet's", Flags{}, []string{"--lock-file=/run/a"}, Lock{"the kubelet's --lock-file", "/run/a", false, v1alpha1.RunModeHost}},
		{"the kubelet's, until asked", Flags{Bootstrap: true}, []string{"--lock-file=/run/a"}, Lock{"the kubelet's --lock-file", "/run/a", true, v1alpha1.RunModeBootstrap}},
		{"the kubelet's, as it would", Flags{}, []string{"--lock-file=/run/a", "--exit-on-lock-contention"}, Lock{"the kubelet's --lock-file", "/run/a", true, v1alpha1.RunModeBootstrap}},
		{"the agent's, as the kubelet would", Flags{LockFile: "/run/a"}, []string{"--exit-on-lock-contention"}, Lock{"--lock-file", "/run/a", true, v1alpha1.RunModeBootstrap}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Dir = "/var/lib/evenkeel"
			k := assert.Value(component.ParseKubelet(append([]string{"/usr/bin/kubelet"}, c.kubelet...)))(t)
			assert.Returns(t, c.want)(c.o.Lock(k))
		})
	}
}

func TestAKubeletHasALockOfItsOwnWhereverTheAgentHasAny(t *testing.T) {
	for _, c := range []struct{ dir, lock, want string }{
		{"", "", ""}, {"/var/lib/evenkeel/", "", "/var/lib/evenkeel/kubelet.lock"},
		{"/var/lib/evenkeel", "/run/a", "/var/lib/evenkeel/kubelet.lock"}, {"", "/run/a", "/run/a.kubelet"},
	} {
		assert.Equal(t, KubeletLock(c.dir, Lock{Path: c.lock}), c.want, "with the directory", c.dir, "and the lock", c.lock)
	}
}
