// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// RunningPID waits for a kubelet, and returns its process ID.
func (n *Subject) RunningPID() int {
	n.T.Helper()
	pid := 0
	n.Eventually("a kubelet runs", func(context.Context) (err error) {
		pid, err = n.KubeletPID()
		return err
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
	n.Eventually("the kubelet that was announced is there", func(ctx context.Context) (err error) {
		defer must.Catch(&err)

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
	n    *Subject
	pid  int
	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	asked int
	bad   []string
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
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	slow := 0
	for {
		err := s.n.Healthy(ctx)
		if ctx.Err() != nil {
			return
		}

		// A busy machine may let it wait for a second, but not for several.
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() && slow < 3 {
			slow, err = slow+1, nil
		} else {
			slow = 0
		}

		s.mu.Lock()
		s.asked++
		if err != nil && len(s.bad) < 3 {
			s.bad = append(s.bad, time.Now().Format(time.TimeOnly)+" "+err.Error())
		}

		s.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Check fails the test if the kubelet is another one, or was ever unhealthy.
func (s *Steady) Check(t *testing.T) {
	t.Helper()
	if pid := s.n.In(t).RunningPID(); pid != s.pid {
		t.Errorf("the kubelet was restarted: process %d, was %d", pid, s.pid)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bad) > 0 {
		t.Errorf("healthz, asked %d times: %v", s.asked, s.bad)
	}

	s.bad = nil
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
	n.Eventually(fmt.Sprintf("the agent says %s, %s, %q", status, reason, words), func(ctx context.Context) (err error) {
		defer must.Catch(&err)

		raw := must.Get(n.AskAgent(ctx, "/configz"))
		z = agent.Configz{}
		must.OK(json.Unmarshal(raw, &z))
		c := z.ConfigOK
		if string(c.Status) != status || c.Reason != reason || !strings.Contains(c.Message+": "+c.Cause, words) {
			return fmt.Errorf("it says %+v, error %q", c, z.Error)
		}

		return nil
	})

	return z
}
