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
	at     blockdev.Position
	seed   uint64
	dir    string
	loss   blockdev.Loss
}

func (c *cut) String() string {
	return fmt.Sprintf("cut at %d during %s (%d records after the last flush: %d writes kept, %d torn, %d lost; seed %d)",
		c.at, c.moment, c.at-c.loss.Flushed, c.loss.Kept, c.loss.Torn, c.loss.Lost, c.seed)
}

// superblock is the size in bytes of the block with the primary superblock of
// ext4. Unlike the journal, it has no protection against torn sectors: neither
// e2fsck nor the kernel opens a file system whose superblock is torn, whatever
// runs on it.
const superblock = 4096

// cut makes the disk after the cut, checks it, and boots from it.
func (l *lab) cut(ctx context.Context, c *cut, boot bool) (err error) {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}

	layer, loss, err := c.run.disk.Cut(c.at, c.seed, superblock, filepath.Join(c.dir, "layer"))
	if err != nil {
		return err
	}

	c.loss = loss
	defer func() {
		if err = errors.Join(err, layer.Close()); err == nil {
			err = os.RemoveAll(c.dir)
		}
	}()
	if err := l.examine(ctx, c, layer); err != nil {
		l.evidence(ctx, filepath.Base(c.dir))
		return err
	}

	if !boot {
		return nil
	}

	disk, err := blockdev.Record(layer, filepath.Join(c.dir, "next"))
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, disk.Close()) }()
	known := c.run.known(c.at)
	if known.agent != plain {
		err = l.writeSpec(ctx, known.assigned.uid, known.assigned.name)
	} else {
		err = l.forgetConfig(ctx)
	}

	if err != nil {
		return err
	}

	m, stop, err := l.bootRecorded(ctx, disk, filepath.Join(c.dir, "vm"))
	if err != nil {
		return err
	}

	l.machine = m
	defer func() {
		if err != nil {
			l.evidence(ctx, filepath.Base(c.dir))
		}

		l.discard()
		stop()
	}()

	return l.comesBack(ctx, c, m, known)
}

// comesBack checks that the node comes up by itself, has forgotten nothing, and
// ends where it would have ended without the cut.
func (l *lab) comesBack(ctx context.Context, c *cut, m *vm.Machine, known fact) (err error) {
	defer must.Catch(&err)

	boot := must.Get(m.WaitBoot(ctx, "")) // it answers slowly while it boots
	err = bed.Eventually(ctx, patience, func(ctx context.Context) error {
		n, err := l.object(ctx)
		if err == nil && (n.Status.NodeInfo.BootID != boot || !fleet.IsReady(n)) {
			err = fmt.Errorf("the node of boot %s reports boot %s, and the conditions %+v", boot, n.Status.NodeInfo.BootID, n.Status.Conditions)
		}

		return err
	})
	if err != nil {
		return fmt.Errorf("the node does not come up by itself: %w", err)
	}
	if known.agent != plain {
		must.OK(l.rememberedIn(ctx, c, m, known))
	}

	if known.agent == plain || c.moment == upgrading {
		program := agentPath
		if c.moment == upgrading {
			program = newPath
		}
		if err := l.install(ctx, m, program); err != nil {
			return fmt.Errorf("the next install by hand: %w", err)
		}
	}

	must.OK(l.settles(ctx, c, known))
	must.OK(l.rememberedIn(ctx, c, m, known))

	return l.leftNothing(ctx, c, m)
}

// rememberedIn compares what the agent's records in the machine say with what
// is known.
func (l *lab) rememberedIn(ctx context.Context, c *cut, m *vm.Machine, known fact) error {
	var s inspect.Summary
	err := bed.Eventually(ctx, prompt, func(ctx context.Context) error {
		out, err := m.Run(ctx, agentPath+" status --dynamic-config-dir=/var/lib/evenkeel -o json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &s)
		}
		if err == nil && len(s.Problems) > 0 { // until the agent has said what it runs
			err = errors.New(strings.Join(s.Problems, "; "))
		}

		return err
	})
	if err != nil {
		return fmt.Errorf("the agent's records: %w", err)
	}

	return remembers(c, s, known)
}

// remembers returns an error if records lack what is known, or run what they
// must not.
func remembers(c *cut, s inspect.Summary, known fact) error {
	allowed := []string{"", known.good, known.assigned.uid}
	if !slices.Contains(allowed, string(s.Runs.UID)) {
		return fmt.Errorf("the node runs %q, allowed are %q", s.Runs.UID, allowed)
	}
	if known.good != "" && string(s.LastKnownGood.UID) != known.good {
		return fmt.Errorf("last-known-good is %q, and was %s", s.LastKnownGood.UID, known.good)
	}

	for _, uid := range known.bad {
		if !slices.ContainsFunc(s.Bad, func(b trial.BadConfig) bool { return b.Revision == uid }) {
			return fmt.Errorf("the rejected configuration %s is forgotten: %+v", uid, s.Bad)
		}
		if string(s.Runs.UID) == uid { // it can still be current: then last-known-good runs
			return fmt.Errorf("the rejected configuration %s runs again", uid)
		}
	}

	if slices.ContainsFunc(s.Bad, func(b trial.BadConfig) bool { return b.Revision == c.run.good.uid }) {
		return fmt.Errorf("the good configuration is rejected: %+v", s.Bad)
	}

	return nil
}

// settles waits for the outcome of the assignment.
func (l *lab) settles(ctx context.Context, c *cut, known fact) error {
	return bed.Eventually(ctx, patience, func(ctx context.Context) (err error) {
		defer must.Catch(&err)

		nc := must.Get(l.config(ctx))
		var now fact
		now.read(nc)
		good, rejected := known.assigned.uid, slices.Contains(now.bad, c.run.bad.uid)
		if known.assigned == c.run.bad {
			good = c.run.good.uid
		}
		if now.active != good || now.good != good || rejected != (known.assigned == c.run.bad) || nc.Status.Trial != nil {
			return fmt.Errorf("assigned is %q, the node reports %+v", known.assigned.name, now)
		}

		pods := localPods
		if good != "" {
			pods = goodPods
		}

		return l.runsWith(ctx, pods) // as the kubelet itself says
	})
}

// leftNothing checks that no temporary files remain, and that doctor finds
// nothing about the node that it did not find before.
func (l *lab) leftNothing(ctx context.Context, c *cut, m *vm.Machine) (err error) {
	defer must.Catch(&err)

	must.OK(bed.Eventually(ctx, prompt, func(ctx context.Context) error { // the agent may be writing a file
		out, err := m.Run(ctx, "find /etc/systemd/system /run/systemd/system /var/lib/evenkeel /var/lib/evenkeel-install /usr/local/bin /opt/bin -name '*.tmp*' -o -name '*trial.conf' 2>/dev/null; true")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("left are %s", out)
		}

		return err
	}))

	return bed.Eventually(ctx, prompt, func(ctx context.Context) error {
		found, err := l.doctor(ctx)
		found = slices.DeleteFunc(found, func(check string) bool { return slices.Contains(c.run.found, check) })
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("doctor finds %q", found)
		}

		return err
	})
}

// doctor returns the names of the checks that found a problem of the node.
func (l *lab) doctor(ctx context.Context) (_ []string, err error) {
	defer must.Catch(&err)

	out, _ := must.Get2(l.evenkeel(ctx, "doctor", "-o", "json"))
	var report struct {
		Findings []struct {
			Severity, Check string
			Names           []string
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		return nil, fmt.Errorf("%w: doctor says %s", err, out)
	}

	var found []string
	for _, f := range report.Findings {
		if f.Severity != "note" && slices.Contains(f.Names, nodeName) {
			found = append(found, f.Check)
		}
	}

	return found, nil
}

// examine checks the file system and the files of a disk without a boot.
func (l *lab) examine(ctx context.Context, c *cut, layer *blockdev.Layer) (err error) {
	defer must.Catch(&err)

	path := filepath.Join(c.dir, "examined")
	must.Get(l.image.Copy(ctx, path))
	defer os.Remove(path)
	image := must.Get(os.OpenFile(path, os.O_RDWR, 0))
	must.OK(errors.Join(layer.Overwrite(image), image.Close()))
	// The first replays the journal, as a mount does; the second finds nothing.
	for _, mode := range []string{"-p", "-fn"} {
		out, err := exec.CommandContext(ctx, "/sbin/e2fsck", mode, path).CombinedOutput()
		if exit := (*exec.ExitError)(nil); mode == "-p" && errors.As(err, &exit) && exit.ExitCode() == 1 {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("e2fsck %s: %w: %s", mode, err, out)
		}
	}

	files := filepath.Join(c.dir, "files")
	must.OK(os.MkdirAll(files, 0o755))
	defer os.RemoveAll(files)
	for _, dir := range []string{"/var/lib/evenkeel", "/etc/systemd/system/kubelet.service.d"} {
		out, err := exec.CommandContext(ctx, "/sbin/debugfs", "-R", "rdump "+dir+" "+files, path).CombinedOutput()
		if err != nil {
			return fmt.Errorf("debugfs: %w: %s", err, out)
		}
	}

	known := c.run.known(c.at)
	dropin, err := os.ReadFile(filepath.Join(files, "kubelet.service.d", "90-evenkeel.conf"))
	first, rest, _ := strings.Cut(string(dropin), "\n")
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case err != nil && known.agent == installed:
		return errors.New("the drop-in is lost")
	case err == nil && !strings.HasSuffix(first, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(rest)))):
		return fmt.Errorf("the drop-in is torn: %q", dropin)
	}

	if _, err := os.Stat(filepath.Join(files, "evenkeel", "agent.lock")); errors.Is(err, os.ErrNotExist) && known.agent == plain {
		return nil
	}

	s, err := inspect.Summarize(filepath.Join(files, "evenkeel"))
	if err == nil && len(s.Problems) > 0 {
		err = errors.New(strings.Join(s.Problems, "; "))
	}
	if err != nil {
		return fmt.Errorf("the agent's records on the disk: %w", err)
	}

	return remembers(c, s, known)
}
