// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/blockdev"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm"
)

// moment is what the node does when its power is cut.
type moment string

const (
	installing moment = "install"
	changing   moment = "change"
	trying     moment = "trial"
	promoting  moment = "promotion"
	failing    moment = "rollback"
	upgrading  moment = "upgrade"
	handing    moment = "hand-over"
)

// moments in the order of the run.
var moments = []moment{installing, changing, trying, promoting, failing, upgrading, handing}

// around is how much of the disk's log, in bytes, before the report of a
// promotion counts as its moment: the agent saves its decision, and reports it
// when the decision is durable.
const around = 256 << 10

// span is a part of the log, in bytes.
type span struct {
	moment     moment
	begin, end int64
}

// run is a node whose disk was recorded while it was installed, changed and
// upgraded.
type run struct {
	path  string // of the log
	log   *blockdev.Log
	spans []span
	facts []fact // in order
	good  config
	bad   config
	found []string // by doctor, at the end
}

// perBoot is how many more disks are checked without a boot for each that is
// booted.
const perBoot = 4

// cutsPower records one run, cuts the power at random points of it, and boots
// from the disks.
func cutsPower(ctx context.Context, l *lab) {
	l.discard()
	l.hostCluster(ctx)
	if l.seed == 0 {
		l.seed = uint64(time.Now().Unix())
	}

	fmt.Printf("  seed %d: go run ./hack/vm -only=cuts -cuts=%d -seed=%d\n", l.seed, l.cuts, l.seed)
	r := &run{path: filepath.Join(l.dir, "run.log")}
	err := must.Try(func() { must.About("the run to record", func() { l.record(ctx, r) }) })
	if err != nil {
		fmt.Printf("  FAILED: %v\n", err)
	}
	if r.log == nil || len(r.spans) == 0 {
		must.OK(err)
	}

	dice := rand.New(rand.NewPCG(l.seed, 0))
	booted, cuts, examined := map[moment]int{}, 0, 0
	failures := []error{err} // what was recorded before it can be cut
	had := slices.DeleteFunc(slices.Clone(moments), func(m moment) bool { return len(r.of(m)) == 0 })
cutting:
	for i := range l.cuts {
		spans := r.of(had[(int(l.seed%uint64(len(had)))+i)%len(had)])
		for n := range perBoot + 1 {
			s := spans[dice.IntN(len(spans))]
			first := r.log.Records(s.begin)
			at, seed := first+dice.IntN(r.log.Records(s.end)-first+1), dice.Uint64()
			c := &cut{run: r, moment: s.moment, at: at, seed: seed, dir: filepath.Join(l.dir, fmt.Sprintf("cut%d-%d", i, n))}
			boot := n == perBoot
			begin := time.Now()
			err := must.Try(func() { l.cut(ctx, c, boot) })
			result := "ok"
			if err != nil {
				result = "FAILED: " + err.Error()
				failures = append(failures, fmt.Errorf("%s: %w", c, err))
			}

			fmt.Printf("  %s, booted %t, after %s: %s\n", c, boot, time.Since(begin).Round(time.Second), result)
			if ctx.Err() != nil {
				break cutting // the others count
			}
			if err != nil {
				continue // it shows nothing for the totals
			}

			if examined++; boot {
				cuts++
				booted[s.moment]++
			}
		}
	}
	fmt.Printf("soak: power-cuts %d\nsoak: power-cuts-examined %d\n", cuts, examined)
	for _, m := range moments {
		fmt.Printf("soak: cuts-during-%s %d\n", m, booted[m])
	}

	fmt.Printf("soak: next-seed %d\n", l.seed+1)
	must.OK(errors.Join(failures...))
}

// of returns the parts of the run with a moment.
func (r *run) of(m moment) []span {
	return slices.DeleteFunc(slices.Clone(r.spans), func(s span) bool { return s.moment != m })
}

// The programs: the agent, and another one that an upgrade installs.
const (
	agentPath = "/usr/local/bin/evenkeel-agent"
	newPath   = "/opt/bin/evenkeel-agent"
	localPods = 110 // maxPods of kubeletConfig
	goodPods  = 99  // of the good configuration
	flags     = "--config-trial-duration=15s --crash-loop-threshold=2 " + agentFlags
)

// record runs the node on a disk that is recorded: it installs the agent,
// assigns a good and a bad configuration, and upgrades the agent. The run ends
// at the first error.
func (l *lab) record(ctx context.Context, r *run) {
	must.OK(os.WriteFile(r.path, nil, 0o600))
	disk := must.Get(l.image.Overlay(ctx, filepath.Join(l.dir, "run.qcow2")))
	disk.Log = r.path
	l.machine = l.boot(ctx, vm.Options{Root: disk})
	defer l.discard()
	err := must.Try(func() { l.explained(ctx, "run", func() { l.play(ctx, l.machine, r) }) })
	must.OK(errors.Join(err, l.machine.Pause(context.WithoutCancel(ctx)), must.Try(func() { l.readLog(ctx, r, disk) })))
}

// readLog reads the log of a run that has ended. The last record is a flush, so
// that the disk after all of them must be the one that QEMU has written.
func (l *lab) readLog(ctx context.Context, r *run, disk vm.Disk) {
	r.log = must.Get(blockdev.Read(r.path))
	all := r.log.Records(r.logSize())
	path, loss := l.after(ctx, r, all, 0, l.dir)
	defer os.Remove(path)
	must.That(loss.Flushed == all, "the log ends without a flush: %+v of %d records", loss, all)
	succeeds(ctx, "qemu-img", "compare", "-U", "-f", "raw", "-F", disk.Format, path, disk.File)
	fmt.Printf("  the disk is that of the log, which has %d records\n", all)
}

// logSize returns the present size of the log in bytes.
func (r *run) logSize() int64 { return must.Get(os.Stat(r.path)).Size() }

// play is the run. It notes what the agent reported, and where the disk's log
// was then.
func (l *lab) play(ctx context.Context, m *vm.Machine, r *run) {
	l.join(ctx, m)
	l.forgetConfig(ctx)
	agent, err := os.ReadFile("bin/evenkeel-agent")
	must.That(err == nil, "%w: run make build", err)
	must.OK(m.PutFile(ctx, agentPath, 0o755, agent))
	must.OK(m.PutFile(ctx, newPath, 0o755, append(agent, 0)))
	r.good = l.create(ctx, "good", fmt.Sprintf("maxPods: %d", goodPods))
	// The dry run passes, and the kubelet exits when it has started.
	r.bad = l.create(ctx, "bad", "kubeReserved: {ephemeral-storage: 100Ti}")
	o := l.observe(ctx, r)
	defer o.stop()
	during := func(what moment, do func()) {
		begin := r.logSize()
		begun := time.Now()
		must.About(string(what), do)
		r.spans = append(r.spans, span{what, begin, r.logSize()})
		fmt.Printf("  recorded %s: %d KiB, %s\n", what, (r.logSize()-begin)>>10, time.Since(begun).Round(time.Second))
	}
	install := func(program string) func() {
		return func() {
			l.install(ctx, m, program)
			o.note(func(f *fact) { f.agent = installed })
		}
	}
	assign := func(c config) func() {
		return func() {
			l.writeSpec(ctx, c)
			o.note(func(f *fact) { f.assigned = c })
			o.until(ctx, "runs "+c.name, func(f fact) bool { return f.active == c.uid || slices.Contains(f.bad, c.uid) })
		}
	}
	must.Get(m.Run(ctx, "systemctl is-system-running --wait || true"))
	during(installing, install(agentPath))
	during(changing, assign(r.good))
	during(trying, func() {
		o.until(ctx, "has promoted the good configuration", func(f fact) bool { return f.good == r.good.uid })
	})
	end := r.logSize()
	r.spans = append(r.spans, span{promoting, max(0, end-around), end})
	during(changing, assign(r.bad))
	during(failing, func() {
		o.until(ctx, "has gone back", func(f fact) bool { return slices.Contains(f.bad, r.bad.uid) && f.active == r.good.uid })
	})
	l.ready(ctx)
	during(upgrading, install(newPath))
	r.found = l.doctor(ctx)
	o.note(func(f *fact) { f.agent = locked })
	must.Get(m.Run(ctx, prepareHandOver))
	l.ready(ctx)
	during(handing, func() {
		must.Get(m.Run(ctx, "systemctl enable --now evenkeel-self"))
		bed.Await(ctx, patience, func(ctx context.Context) {
			must.Get(m.Run(ctx, "pgrep -x kubelet -P $(systemctl show --property=MainPID --value evenkeel-self)"))
		})
	})
}

// install runs evenkeel-agent install by hand. On a machine that is slow, the
// dry run may not end in time; then nothing was changed, and it is run again.
func (l *lab) install(ctx context.Context, m *vm.Machine, program string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		out, err := m.Run(ctx, program+" install --timeout=25m -- "+flags)
		if exit, is := errors.AsType[*vm.ExitError](err); is && exit.Code == 1 && strings.Contains(out, "did not exit within") {
			continue
		}

		must.OK(err)
		must.That(strings.Contains(out, "evenkeel-agent runs the kubelet of kubelet.service"), "install says %q", out)

		return
	}
}

// prepareHandOver makes the agent of kubelet.service one that gives the node to
// another agent. The other one is that of evenkeel-self.service, which does not
// run yet.
const prepareHandOver = `set -e
line=$(grep '^ExecStart=/' /etc/systemd/system/kubelet.service.d/90-evenkeel.conf)
/opt/bin/evenkeel-agent uninstall --timeout=25m
mkdir -p -m 700 /var/lib/evenkeel-lock
cd /etc/systemd/system
cp /usr/lib/systemd/system/kubelet.service evenkeel-self.service
with() {
	mkdir -p $1.service.d
	printf '[Service]\nType=exec\nKillMode=mixed\nRestart=always\nRestartSec=1\nExecStart=\n%s\n' "$(echo "$line" | sed "s| -- | --lock-file=/var/lib/evenkeel-lock/lock $2 -- |")" >$1.service.d/95-lock.conf
}
with kubelet --bootstrap
with evenkeel-self --listen=127.0.0.1:10270
if [ -d /usr/lib/systemd/system/kubelet.service.d ]; then cp /usr/lib/systemd/system/kubelet.service.d/*.conf evenkeel-self.service.d/; fi
sync
systemctl daemon-reload
systemctl restart kubelet
`
