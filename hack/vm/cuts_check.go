// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/cmd/evenkeel-agent/inspect"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/blockdev"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm"
)

// cut is a power cut of a run.
type cut struct {
	run    *run
	moment moment
	at     int // the number of records
	seed   uint64
	dir    string
	loss   blockdev.Loss
}

func (c *cut) String() string {
	return fmt.Sprintf("cut at %d during %s (%d records after the last flush: %d writes kept, %d torn, %d lost; seed %d)",
		c.at, c.moment, c.at-c.loss.Flushed, c.loss.Kept, c.loss.Torn, c.loss.Lost, c.seed)
}

// known returns what was known before the cut.
func (c *cut) known() fact { return c.run.known(c.run.log.Size(c.at)) }

// superblock is the size in bytes of the block with the primary superblock of
// ext4. Unlike the journal, it has no protection against torn sectors: neither
// e2fsck nor the kernel opens a file system whose superblock is torn, whatever
// runs on it.
const superblock = 4096

// cut checks the disk after the cut, and with boot boots from it.
func (l *lab) cut(ctx context.Context, c *cut, boot bool) {
	must.OK(os.MkdirAll(c.dir, 0o755))
	l.explained(ctx, filepath.Base(c.dir), func() { l.examine(ctx, c) })
	if boot {
		l.bootsFrom(ctx, c)
	}

	must.OK(os.RemoveAll(c.dir))
}

// after makes the disk of the run after a cut, and returns its path.
func (l *lab) after(ctx context.Context, r *run, at int, seed uint64, dir string) (string, blockdev.Loss) {
	path := filepath.Join(dir, "disk")
	succeeds(ctx, "cp", "--sparse=always", "--reflink=auto", l.image.Disk, path)
	image := must.Get(os.OpenFile(path, os.O_RDWR, 0))
	loss, err := r.log.Cut(at, seed, superblock, image)
	must.OK(errors.Join(err, image.Close()))

	return path, loss
}

// bootsFrom boots from the disk after the cut.
func (l *lab) bootsFrom(ctx context.Context, c *cut) {
	path, _ := l.after(ctx, c.run, c.at, c.seed, c.dir)
	defer os.Remove(path)
	known := c.known()
	if known.agent != plain {
		l.writeSpec(ctx, known.assigned)
	} else {
		l.forgetConfig(ctx)
	}

	l.machine = l.boot(ctx, vm.Options{Root: vm.Disk{File: path}})
	defer l.discard()
	l.explained(ctx, filepath.Base(c.dir), func() { l.comesBack(ctx, c, l.machine, known) })
}

// comesBack checks that the node comes up by itself, has forgotten nothing, and
// ends where it would have ended without the cut.
func (l *lab) comesBack(ctx context.Context, c *cut, m *vm.Machine, known fact) {
	boot := must.Get(m.WaitBoot(ctx, "")) // it answers slowly while it boots
	must.About("the node does not come up by itself", func() {
		bed.Await(ctx, patience, func(ctx context.Context) {
			n := l.object(ctx)
			must.That(n.Status.NodeInfo.BootID == boot && fleet.IsReady(n),
				"the node of boot %s reports boot %s, and the conditions %+v", boot, n.Status.NodeInfo.BootID, n.Status.Conditions)
		})
	})
	if known.agent != plain {
		l.rememberedIn(ctx, c, m, known)
	}

	if known.agent == plain || c.moment == upgrading {
		program := agentPath
		if c.moment == upgrading {
			program = newPath
		}

		must.About("the next install by hand", func() { l.install(ctx, m, program) })
	}

	l.settles(ctx, c, known)
	l.rememberedIn(ctx, c, m, known)
	l.leftNothing(ctx, c, m)
}

// rememberedIn compares what the agent's records in the machine say with what
// is known.
func (l *lab) rememberedIn(ctx context.Context, c *cut, m *vm.Machine, known fact) {
	var s inspect.Summary
	bed.Await(ctx, prompt, func(ctx context.Context) {
		out := must.Get(m.Run(ctx, agentPath+" status --dynamic-config-dir=/var/lib/evenkeel -o json"))
		must.OK(json.Unmarshal([]byte(out), &s))
		must.That(len(s.Problems) == 0, "the agent's records: %q", s.Problems) // until the agent has said what it runs
	})
	remembers(c, s, known)
}

// remembers requires that records have what is known, and run only what they
// may.
func remembers(c *cut, s inspect.Summary, known fact) {
	allowed := []string{"", known.good, known.assigned.uid}
	rejects := func(uid string) bool {
		return slices.ContainsFunc(s.Bad, func(b trial.BadConfig) bool { return b.Revision == uid })
	}
	must.That(slices.Contains(allowed, string(s.Runs.UID)), "the node runs %q, allowed are %q", s.Runs.UID, allowed)
	must.That(known.good == "" || string(s.LastKnownGood.UID) == known.good,
		"last-known-good is %q, and was %s", s.LastKnownGood.UID, known.good)
	for _, uid := range known.bad {
		must.That(rejects(uid), "the rejected configuration %s is forgotten: %+v", uid, s.Bad)
		must.That(string(s.Runs.UID) != uid, "the rejected configuration %s runs again", uid) // it can still be current: then last-known-good runs
	}

	must.That(!rejects(c.run.good.uid), "the good configuration is rejected: %+v", s.Bad)
}

// settles waits for the outcome of the assignment.
func (l *lab) settles(ctx context.Context, c *cut, known fact) {
	bed.Await(ctx, patience, func(ctx context.Context) {
		nc := l.config(ctx)
		var now fact
		now.read(nc)
		good, rejected := known.assigned.uid, slices.Contains(now.bad, c.run.bad.uid)
		if known.assigned == c.run.bad {
			good = c.run.good.uid
		}

		must.That(now.active == good && now.good == good && rejected == (known.assigned == c.run.bad) && nc.Status.Trial == nil,
			"assigned is %q, the node reports %+v", known.assigned.name, now)
		pods := localPods
		if good != "" {
			pods = goodPods
		}

		l.runsWith(ctx, pods) // as the kubelet itself says
	})
}

// leftNothing checks that no temporary files remain, and that doctor finds
// nothing about the node that it did not find before.
func (l *lab) leftNothing(ctx context.Context, c *cut, m *vm.Machine) {
	bed.Await(ctx, prompt, func(ctx context.Context) { // the agent may be writing a file
		out := must.Get(m.Run(ctx, "find /etc/systemd/system /run/systemd/system /var/lib/evenkeel /var/lib/evenkeel-install /usr/local/bin /opt/bin -name '*.tmp*' -o -name '*trial.conf' 2>/dev/null; true"))
		must.That(strings.TrimSpace(out) == "", "left are %s", out)
	})
	bed.Await(ctx, prompt, func(ctx context.Context) {
		found := slices.DeleteFunc(l.doctor(ctx), func(check string) bool { return slices.Contains(c.run.found, check) })
		must.That(len(found) == 0, "doctor finds %q", found)
	})
}

// doctor returns the names of the checks that found a problem of the node.
func (l *lab) doctor(ctx context.Context) []string {
	out, _ := l.evenkeel(ctx, "doctor", "-o", "json")
	var report struct {
		Findings []struct {
			Severity, Check string
			Names           []string
		}
	}
	err := json.Unmarshal([]byte(out), &report)
	must.That(err == nil, "%w: doctor says %s", err, out)
	var found []string
	for _, f := range report.Findings {
		if f.Severity != "note" && slices.Contains(f.Names, nodeName) {
			found = append(found, f.Check)
		}
	}

	return found
}

// examine checks the file system and the files of a disk without a boot.
func (l *lab) examine(ctx context.Context, c *cut) {
	var path string
	path, c.loss = l.after(ctx, c.run, c.at, c.seed, c.dir)
	defer os.Remove(path)
	// The first replays the journal, as a mount does; the second finds nothing.
	for _, mode := range []string{"-p", "-fn"} {
		out, err := exec.CommandContext(ctx, "/sbin/e2fsck", mode, path).CombinedOutput()
		exit, is := errors.AsType[*exec.ExitError](err)
		must.That(err == nil || mode == "-p" && is && exit.ExitCode() == 1, "e2fsck %s: %w: %s", mode, err, out)
	}

	files := filepath.Join(c.dir, "files")
	must.OK(os.MkdirAll(files, 0o755))
	defer os.RemoveAll(files)
	for _, dir := range []string{"/var/lib/evenkeel", "/etc/systemd/system/kubelet.service.d"} {
		succeeds(ctx, "/sbin/debugfs", "-R", "rdump "+dir+" "+files, path)
	}

	known := c.known()
	dropin, err := os.ReadFile(filepath.Join(files, "kubelet.service.d", "90-evenkeel.conf"))
	first, rest, _ := strings.Cut(string(dropin), "\n")
	if !errors.Is(err, os.ErrNotExist) {
		must.OK(err)
		must.That(strings.HasSuffix(first, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(rest)))), "the drop-in is torn: %q", dropin)
	} else {
		must.That(known.agent != installed, "the drop-in is lost")
	}

	if _, err := os.Stat(filepath.Join(files, "evenkeel", "agent.lock")); errors.Is(err, os.ErrNotExist) && known.agent == plain {
		return
	}

	s := must.Get(inspect.Summarize(filepath.Join(files, "evenkeel")))
	must.That(len(s.Problems) == 0, "the agent's records on the disk: %q", s.Problems)
	remembers(c, s, known)
}
