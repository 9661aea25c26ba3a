// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
)

func (s *show) start(ctx context.Context) {
	s.title("A stock kubelet, started by evenkeel-agent with its existing command line, and two pods")
	say("$ %s", s.shortened(printable.Shell(s.agent.Argv()...)))
	s.startAgent()
	s.until(ctx, "True", "LocalInit")
	s.capacity(ctx, 110)
	s.runPods(ctx, "web", "db")
	s.verdict(ctx, outcome{})
}

// shortened replaces the long directories of this machine in a command line.
func (s *show) shortened(text string) string {
	if path, err := bed.Path(); err == nil {
		bin, _, _ := strings.Cut(path, ":")
		text = strings.ReplaceAll(text, bin+"/", "bin/")
	}

	return text
}

func (s *show) good(ctx context.Context) {
	s.title("A good change, merged over the node's own configuration: maxPods 110 -> 120")
	s.assign(ctx, 0, "more-pods", "maxPods: 120\n")
	s.capacity(ctx, 120)
	s.verdict(ctx, outcome{})
}

func (s *show) typo(ctx context.Context) {
	s.title("A typo: maxPodz")
	s.rejected(ctx, "", "typo", "maxPodz: 130\n")
}

func (s *show) badValue(ctx context.Context) {
	s.title("A value that would stop the kubelet at its start; --force assigns it although the preflight refuses it")
	s.rejected(ctx, "ValidationFailed", "banana", "maxPods: 120\nevictionHard: {memory.available: banana}\n", "--force")
}

func (s *show) protected(ctx context.Context) {
	s.title("A protected field: no payload may open the kubelet's API to anonymous requests, with --force neither")
	s.rejected(ctx, "ProtectedFields", "open", "maxPods: 120\nauthentication: {anonymous: {enabled: true}}\n", "--force")
}

// rejected assigns a configuration that must never reach the running kubelet.
// With a reason, it must be assigned, and ConfigOK False for this reason.
func (s *show) rejected(ctx context.Context, reason, name, fields string, flags ...string) {
	s.assign(ctx, 2, name, fields, flags...)
	if reason != "" {
		s.until(ctx, "False", reason)
	}

	pid := must.Get(s.agent.KubeletPID())
	must.That(pid == s.kubelet, "the kubelet was process %d and is %d", s.kubelet, pid)
	s.verdict(ctx, outcome{bad: true})
}

func (s *show) crashLoop(ctx context.Context) {
	s.title("A value that no dry run detects: the kubelet crashes, because more storage is reserved than the node has")
	s.assign(ctx, 2, "crash", "maxPods: 140\nkubeReserved: {ephemeral-storage: 100Ti}\n")
	s.until(ctx, "False", "CrashLooped")
	s.capacity(ctx, 120)
	s.verdict(ctx, outcome{bad: true}, "rolled back by itself")
}

func (s *show) noAPI(ctx context.Context) {
	s.title("The API server is stopped, and agent and kubelet are restarted")
	must.OK(s.Cluster.StopAPIServer())
	// The API server is started after a failure too, because a user with KEEP=1
	// needs it.
	err := must.Try(func() { s.restart(ctx) })
	must.OK(errors.Join(err, s.Cluster.StartAPIServer(ctx)))
	s.capacity(ctx, 120)
	s.until(ctx, "False", "CrashLooped")
	s.verdict(ctx, outcome{})
}

// restart restarts agent and kubelet. The kubelet must become healthy with the
// configuration more-pods.
func (s *show) restart(ctx context.Context) {
	s.agentMayEnd()
	must.OK(s.agent.Stop(patience))
	s.startAgent()
	must.About("the kubelet is not healthy", func() { must.OK(bed.Eventually(ctx, patience, s.Healthy)) })
	say("a healthy kubelet, with no API; evenkeel-agent status says:")
	out, code := s.agent.Run(ctx, "", "status", "--dynamic-config-dir="+s.agent.Dir)
	for line := range strings.Lines(out) {
		say("  %s", strings.TrimRight(line, "\n"))
	}

	must.That(code == 0 && strings.Contains(out, "more-pods"), "status did not name the configuration more-pods, exit code %d", code)
}

// assign assigns a drop-in to the real node, as a user does.
func (s *show) assign(ctx context.Context, code int, name, fields string, flags ...string) {
	args := []string{"evenkeel", "assign", s.Node.Name(), "-f", s.dropIn(name, fields), "--drop-in", "--yes"}
	s.kubectl(ctx, code, append(args, flags...)...)
}

// dropIn writes the file of a drop-in, shows its fields, and returns its name.
func (s *show) dropIn(name, fields string) string {
	name += ".yaml"
	for line := range strings.Lines(fields) {
		say("%s | %s", name, strings.TrimRight(line, "\n"))
	}

	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	must.OK(os.WriteFile(filepath.Join(s.files, name), []byte(head+fields), 0o600))

	return name
}

// kubectl shows a command and its output. The exit code must be code.
func (s *show) kubectl(ctx context.Context, code int, args ...string) {
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
	must.That(err == nil || ctx.Err() != nil || within.Err() == nil, "%s: it did not end within %s", typed, patience)
	must.That(err == nil, "%s: %w", typed, err)
	must.That(got == code, "%s: exit code %d, not %d", typed, got, code)
	if code != 0 {
		say("exit code %d", code)
	}
}

// until waits for ConfigOK and shows it.
func (s *show) until(ctx context.Context, status, reason string) {
	bed.Await(ctx, patience, func(ctx context.Context) {
		nc := must.Get(s.Get(ctx))
		c := bed.ConfigOK(nc)
		must.That(string(c.Status) == status && c.Reason == reason && c.ObservedGeneration == nc.Generation,
			"ConfigOK is not %s/%s but %s/%s: %s", status, reason, c.Status, c.Reason, c.Message)
		say("ConfigOK %s (%s): %s", c.Status, c.Reason, c.Message)
	})
}

// capacity waits until the node is Ready and reports a capacity for pods.
func (s *show) capacity(ctx context.Context, want int64) {
	bed.Await(ctx, patience, func(ctx context.Context) {
		node := must.Get(s.Object(ctx))
		pods := node.Status.Capacity.Pods().Value()
		must.That(pods == want, "the node has a capacity for pods of %d, not %d", pods, want)
		must.That(fleet.IsReady(node), "the node is not Ready")
	})
	say("the node is Ready, status.capacity.pods is %d", want)
}
