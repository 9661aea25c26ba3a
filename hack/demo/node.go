// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
)

func (s *show) start(ctx context.Context) (err error) {
	defer must.Catch(&err)

	s.title("A stock kubelet, started by evenkeel-agent with its existing command line, and two pods")
	say("$ %s", s.shortened(printable.Shell(s.agent.Argv()...)))
	must.OK(s.startAgent())
	must.Get(s.until(ctx, "True", "LocalInit"))
	must.OK(s.capacity(ctx, 110))
	must.OK(s.runPods(ctx, "web", "db"))

	return s.verdict(ctx, outcome{})
}

// shortened replaces the long directories of this machine in a command line.
func (s *show) shortened(text string) string {
	if path, err := bed.Path(); err == nil {
		bin, _, _ := strings.Cut(path, ":")
		text = strings.ReplaceAll(text, bin+"/", "bin/")
	}

	return text
}

func (s *show) good(ctx context.Context) (err error) {
	defer must.Catch(&err)

	s.title("A good change, merged over the node's own configuration: maxPods 110 -> 120")
	must.OK(s.assign(ctx, 0, "more-pods", "maxPods: 120\n"))
	must.OK(s.capacity(ctx, 120))

	return s.verdict(ctx, outcome{})
}

func (s *show) typo(ctx context.Context) error {
	s.title("A typo: maxPodz")
	return s.rejected(ctx, "", "typo", "maxPodz: 130\n")
}

func (s *show) badValue(ctx context.Context) error {
	s.title("A value that would stop the kubelet at its start; --force assigns it although the preflight refuses it")
	return s.rejected(ctx, "ValidationFailed", "banana", "maxPods: 120\nevictionHard: {memory.available: banana}\n", "--force")
}

func (s *show) protected(ctx context.Context) error {
	s.title("A protected field: no payload may open the kubelet's API to anonymous requests, with --force neither")
	return s.rejected(ctx, "ProtectedFields", "open", "maxPods: 120\nauthentication: {anonymous: {enabled: true}}\n", "--force")
}

// rejected assigns a configuration that must never reach the running kubelet.
// With a reason, it must be assigned, and ConfigOK False for this reason.
func (s *show) rejected(ctx context.Context, reason, name, fields string, flags ...string) (err error) {
	defer must.Catch(&err)

	must.OK(s.assign(ctx, 2, name, fields, flags...))
	if reason != "" {
		must.Get(s.until(ctx, "False", reason))
	}

	must.OK(s.untouched())

	return s.verdict(ctx, outcome{bad: true})
}

func (s *show) crashLoop(ctx context.Context) (err error) {
	defer must.Catch(&err)

	s.title("A value that no dry run detects: the kubelet crashes, because more storage is reserved than the node has")
	must.OK(s.assign(ctx, 2, "crash", "maxPods: 140\nkubeReserved: {ephemeral-storage: 100Ti}\n"))
	must.Get(s.until(ctx, "False", "CrashLooped"))
	must.OK(s.capacity(ctx, 120))

	return s.verdict(ctx, outcome{bad: true}, "rolled back by itself")
}

func (s *show) noAPI(ctx context.Context) (err error) {
	defer must.Catch(&err)

	s.title("The API server is stopped, and agent and kubelet are restarted")
	must.OK(s.Cluster.StopAPIServer())
	// The API server is started after a failure too, because a user with KEEP=1
	// needs it.
	must.OK(errors.Join(s.restart(ctx), s.Cluster.StartAPIServer(ctx)))
	must.OK(s.capacity(ctx, 120))
	must.Get(s.until(ctx, "False", "CrashLooped"))

	return s.verdict(ctx, outcome{})
}

// restart restarts agent and kubelet. The kubelet must become healthy with the
// configuration more-pods.
func (s *show) restart(ctx context.Context) (err error) {
	defer must.Catch(&err)

	s.agentMayEnd()
	must.OK(s.agent.Stop(patience))
	must.OK(s.startAgent())
	if err := bed.Eventually(ctx, patience, s.Healthy); err != nil {
		return fmt.Errorf("the kubelet is not healthy: %w", err)
	}

	say("a healthy kubelet, with no API; evenkeel-agent status says:")
	out, code := s.agent.Run(ctx, "", "status", "--dynamic-config-dir="+s.agent.Dir)
	for line := range strings.Lines(out) {
		say("  %s", strings.TrimRight(line, "\n"))
	}
	if code != 0 || !strings.Contains(out, "more-pods") {
		return fmt.Errorf("status did not name the configuration more-pods, exit code %d", code)
	}

	return nil
}

// assign assigns a drop-in to the real node, as a user does.
func (s *show) assign(ctx context.Context, code int, name, fields string, flags ...string) (err error) {
	defer must.Catch(&err)

	file := must.Get(s.dropIn(name, fields))
	return s.kubectl(ctx, code, append([]string{"evenkeel", "assign", s.Node.Name(), "-f", file, "--drop-in", "--yes"}, flags...)...)
}

// dropIn writes the file of a drop-in, shows its fields, and returns its name.
func (s *show) dropIn(name, fields string) (string, error) {
	name += ".yaml"
	for line := range strings.Lines(fields) {
		say("%s | %s", name, strings.TrimRight(line, "\n"))
	}

	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

	return name, os.WriteFile(filepath.Join(s.files, name), []byte(head+fields), 0o600)
}

// kubectl shows a command and its output. The exit code must be code.
func (s *show) kubectl(ctx context.Context, code int, args ...string) error {
	typed := printable.Shell(append([]string{"kubectl"}, args...)...)
	say("$ %s", typed)
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	from, to := io.Pipe()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		lines := bufio.NewScanner(from)
		for lines.Scan() {
			say("  %s", lines.Text())
		}

		_ = from.CloseWithError(lines.Err()) // the command then fails to print
	}()
	got, err := s.Kubectl(within, s.files, to, args...)
	err = errors.Join(err, to.Close())
	<-shown
	switch {
	case err != nil && ctx.Err() == nil && within.Err() != nil:
		return fmt.Errorf("%s: it did not end within %s", typed, patience)
	case err != nil:
		return fmt.Errorf("%s: %w", typed, err)
	case got != code:
		return fmt.Errorf("%s: exit code %d, not %d", typed, got, code)
	case code != 0:
		say("exit code %d", code)
	}

	return nil
}

// until waits for ConfigOK and shows it.
func (s *show) until(ctx context.Context, status, reason string) (*v1alpha1.NodeConfig, error) {
	var nc *v1alpha1.NodeConfig
	err := bed.Eventually(ctx, patience, func(ctx context.Context) (err error) {
		if nc, err = s.Get(ctx); err != nil {
			return err
		}
		if c := bed.ConfigOK(nc); string(c.Status) != status || c.Reason != reason || c.ObservedGeneration != nc.Generation {
			return fmt.Errorf("ConfigOK is not %s/%s but %s/%s: %s", status, reason, c.Status, c.Reason, c.Message)
		}

		return nil
	})
	if err == nil {
		c := bed.ConfigOK(nc)
		say("ConfigOK %s (%s): %s", c.Status, c.Reason, c.Message)
	}

	return nc, err
}

// capacity waits until the node is Ready and reports a capacity for pods.
func (s *show) capacity(ctx context.Context, want int64) error {
	err := bed.Eventually(ctx, patience, func(ctx context.Context) (err error) {
		defer must.Catch(&err)

		node := must.Get(s.Kube.CoreV1().Nodes().Get(ctx, s.Node.Name(), metav1.GetOptions{}))
		if pods := node.Status.Capacity.Pods().Value(); pods != want {
			return fmt.Errorf("the node has a capacity for pods of %d, not %d", pods, want)
		}
		if !isReady(node) {
			return errors.New("the node is not Ready")
		}

		return nil
	})
	if err == nil {
		say("the node is Ready, status.capacity.pods is %d", want)
	}

	return err
}
