// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// RunningPID waits for a kubelet, and returns its process ID.
func (n *Subject) RunningPID() int {
	n.T.Helper()
	pid := 0
	n.Eventually("a kubelet runs", func(context.Context) error {
		pid = must.Get(n.KubeletPID())
		return nil
	})

	return pid
}

// Running returns the revision that the kubelet was started with, and the
// digest of what it was given if that is a whole payload: another revision may
// have the same one. Both are empty for local.
func (n *Subject) Running() (revision, digest string, err error) {
	defer must.Catch(&err)

	for _, arg := range must.Get(n.RunningKubelet()).Argv {
		flag, path, _ := strings.Cut(arg, "=")
		if _, rest, rendered := strings.Cut(path, "/rendered/"); rendered {
			revision, _, _ = strings.Cut(rest, "/")
			if flag == "--config" {
				data, err := os.ReadFile(path)
				return revision, payload.Digest(payload.KeyKubelet, data), err
			}
		}
	}

	return revision, "", nil
}

// Arrived waits until the kubelet that runs, and is healthy, is the one that
// the NodeConfig speaks of: ConfigOK is written before it is started.
func (n *Subject) Arrived() {
	n.T.Helper()
	n.Eventually("the kubelet that was announced is there", func(ctx context.Context) error {
		nc := must.Get(n.Get(ctx))
		revision, digest := must.Get2(n.Running())
		active := nc.Status.Active
		if (active == nil) != (revision == "") || active != nil && string(active.UID) != revision && active.SHA256 != digest {
			return fmt.Errorf("active is %+v, and %q runs", active, revision)
		}

		return n.Healthy(ctx)
	})
}

// KubeletHas waits until the kubelet's own /configz has a value, such as that of
// evictionHard[memory.available].
func (n *Subject) KubeletHas(field string, value any) {
	n.T.Helper()
	n.Eventually(fmt.Sprintf("the kubelet's own %s is %v", field, value), func(ctx context.Context) error {
		config, err := n.KubeletConfigz(ctx)
		is, _ := component.Effective(config).Field(field)

		return errors.Join(err, assert.Unless(fmt.Sprint(is) == fmt.Sprint(value), "it is %v", is))
	})
}

// Steady is a kubelet that must not be disturbed: it is asked for its health
// all the time.
type Steady struct {
	n     *Subject
	pid   int
	stop  context.CancelFunc
	done  chan struct{}
	pulse figures.Pulse
}

// Steady begins to look at the kubelet that the NodeConfig speaks of.
func (n *Subject) Steady() *Steady {
	n.T.Helper()
	n.Arrived()
	return n.SteadyFromNow()
}

// SteadyFromNow begins to look at the kubelet that runs now, whatever the API
// says.
func (n *Subject) SteadyFromNow() *Steady {
	n.T.Helper()
	assert.NoError(n.T, n.Healthy(n.T.Context()))
	ctx, cancel := context.WithCancel(n.T.Context())
	s := &Steady{n: n, pid: n.RunningPID(), stop: cancel, done: make(chan struct{})}
	go s.run(ctx)
	n.T.Cleanup(func() { cancel(); <-s.done })

	return s
}

func (s *Steady) run(ctx context.Context) {
	defer close(s.done)
	slow := 0
	s.pulse.Watch(ctx, 40*time.Millisecond, func(ctx context.Context) error {
		err := s.n.Healthy(ctx)
		// A busy machine may let it wait for a second, but not for several.
		if timeout, is := errors.AsType[net.Error](err); is && timeout.Timeout() && slow < 3 {
			slow++
			return nil
		}

		slow = 0

		return err
	})
}

// Check fails the test if the kubelet is another one, or was ever unhealthy
// since the last check.
func (s *Steady) Check(t *testing.T) {
	t.Helper()
	assert.Equal(t, s.n.In(t).RunningPID(), s.pid, "the kubelet was restarted: process")
	for _, o := range s.pulse.Outages() {
		t.Errorf("the kubelet was not healthy at %s: %v", o.Seen.Format(time.TimeOnly), o.Why)
	}

	s.pulse.Begin(time.Now())
}

// End checks for the last time, and stops looking.
func (s *Steady) End(t *testing.T) {
	t.Helper()
	s.Check(t)
	s.stop()
	<-s.done
}

// AskAgent asks the agent over HTTP.
func (n *Subject) AskAgent(ctx context.Context, path string) (_ []byte, err error) {
	defer must.Catch(&err)

	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Listen+path, nil))
	res := must.Get((&http.Client{Timeout: 20 * time.Second}).Do(req))
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, raw)
	}

	return raw, err
}

// AgentSays waits until the agent's own report has this ConfigOK.
func (n *Subject) AgentSays(status, reason, words string) agent.Configz {
	n.T.Helper()
	var z agent.Configz
	n.Eventually(fmt.Sprintf("the agent says %s, %s, %q", status, reason, words), func(ctx context.Context) error {
		z = agent.Configz{}
		must.OK(json.Unmarshal(must.Get(n.AskAgent(ctx, "/configz")), &z))
		c := z.ConfigOK

		return assert.Unless(string(c.Status) == status && c.Reason == reason && strings.Contains(c.Message+": "+c.Cause, words),
			"it says %+v, error %q", c, z.Error)
	})

	return z
}

// RunPods starts pods that sleep on the node, and waits until they run.
func (n *Subject) RunPods(names ...string) {
	n.T.Helper()
	n.RunPodsWith(func(*corev1.PodSpec) {}, names...)
}

// RunPodsWith is RunPods with a change of each pod.
func (n *Subject) RunPodsWith(change func(*corev1.PodSpec), names ...string) {
	n.T.Helper()
	for _, name := range names {
		pod := localcluster.SleepingPod(n.Node.Name() + "-" + name)
		pod.Spec.NodeName = n.Node.Name()
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
		change(&pod.Spec)
		assert.NoError(n.T, assert.Err(n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Create(n.T.Context(), pod, metav1.CreateOptions{})))
	}

	for _, name := range names {
		n.PodRuns(n.Node.Name() + "-" + name)
	}
}

// PodRuns waits until a pod runs.
func (n *Subject) PodRuns(name string) {
	n.T.Helper()
	n.Eventually("pod "+name+" runs", func(ctx context.Context) error {
		pod, err := n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		return errors.Join(err, assert.Unless(pod.Status.Phase == corev1.PodRunning, "its status is %s", pod.Status.String()))
	})
}

// DeletePods deletes pods, and waits until they are gone.
func (n *Subject) DeletePods(names ...string) {
	n.T.Helper()
	now := int64(1)
	for _, name := range names {
		assert.NoError(n.T, n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Delete(n.T.Context(), n.Node.Name()+"-"+name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}

	n.Eventually("the pods are gone", func(ctx context.Context) error {
		for _, pod := range must.Get(n.Pods(ctx)) {
			there := slices.Contains(names, strings.TrimPrefix(pod.Name, n.Node.Name()+"-"))
			must.That(!there, "%s is still there", pod.Name)
		}

		return nil
	})
}

// Containers returns the containers of the node's pods, as the package bed has
// them.
func (n *Subject) Containers() map[string]string {
	n.T.Helper()
	return assert.Value(n.Bed.Containers(n.T.Context()))(n.T)
}

// SameContainers requires that these containers run as before, and that no
// others do.
func (n *Subject) SameContainers(before map[string]string) {
	n.T.Helper()
	if after := n.Containers(); !maps.Equal(before, after) {
		n.T.Errorf("containers are %v, were %v", after, before)
	}
}
