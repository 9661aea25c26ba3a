// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/hollow"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// options are the flags. Those of the fleet are bound to its options.
type options struct {
	hollow.Options
	kubeconfig string
	changes    []change
	rebootTime time.Duration
	cleanup    bool
	verbose    bool
}

func (o *options) bind(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: the one that kubectl uses)")
	f.IntVar(&o.Nodes, "nodes", 10, "number of nodes at the start")
	f.StringVar(&o.Prefix, "name-prefix", "hollow-", "prefix of the names of nodes; a number follows")
	f.IntVar(&o.Zones, "zones", 0, "number of zones: zone-0, zone-1, ...; 0: no zones")
	f.Func("size", "capacity of the nodes, such as `cpu=8,memory=32Gi`; repeatable: nodes take turns", func(text string) error {
		size, err := payload.ParseCapacity(text)
		if err == nil && (size.CPU == 0 || size.Memory == 0) {
			err = errors.New("cpu and memory are required")
		}

		o.Sizes = append(o.Sizes, size)

		return err
	})
	f.StringToStringVar(&o.Labels, "label", nil, "label of every Node, `key=value`; repeatable")
	f.Func("fault", "a `fault`, see above; repeatable", func(text string) error {
		fault, err := hollow.ParseFault(text)
		o.Faults = append(o.Faults, fault)
		return err
	})
	f.DurationVar(&o.Limits.TrialDuration, "trial-duration", 5*time.Second,
		"how long a kubelet must be healthy with a configuration before it is last-known-good")
	f.DurationVar(&o.Limits.HealthTimeout, "health-timeout", 5*time.Second, "how long a kubelet may be unhealthy during a trial")
	f.IntVar(&o.Limits.CrashLoopThreshold, "crash-loop-threshold", 3, "unexpected restarts that a trial tolerates, 0 to 10")
	f.DurationVar(&o.LeasePeriod, "lease-period", 0, "how often Leases are renewed; 0: only when a kubelet starts and during trials")
	for kind, usage := range map[string]string{
		"join":   "such as 50@1m: 50 nodes join after one minute",
		"leave":  "nodes leave after this time",
		"reboot": "nodes are cordoned, reboot after this time, and are uncordoned",
		"reset":  "nodes reboot after this time without a cordon",
	} {
		f.Func(kind, "`NODES@AFTER`: "+usage+"; repeatable", func(text string) error { return o.addChange(kind, text) })
	}

	f.DurationVar(&o.rebootTime, "reboot-time", 45*time.Second, "how long the Node of a node that reboots is NotReady")
	f.StringVar(&o.Dir, "dir", "", "directory for the agents' state, which is kept (default: a temporary directory)")
	f.BoolVar(&o.cleanup, "cleanup", true, "delete the Nodes, Leases and NodeConfigs of these nodes at the end")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print the logs of the agents")
}

// change is what happens to a number of nodes after a time. The flag has the
// name of kind.
type change struct {
	kind  string
	nodes int
	after time.Duration
}

func (o *options) addChange(kind, text string) error {
	number, after, _ := strings.Cut(text, "@")
	n, err := strconv.Atoi(number)
	d, err2 := time.ParseDuration(after)
	if err != nil || err2 != nil || n <= 0 || d < 0 {
		return errors.New("must be NODES@AFTER, such as 50@1m")
	}

	o.changes = append(o.changes, change{kind, n, d})

	return nil
}

func (o *options) check() error {
	for name, n := range map[string]int64{"nodes": int64(o.Nodes), "zones": int64(o.Zones), "lease-period": int64(o.LeasePeriod)} {
		if n < 0 {
			return program.Usage("--%s must not be negative", name)
		}
	}

	for name, d := range map[string]time.Duration{
		"trial-duration": o.Limits.TrialDuration, "health-timeout": o.Limits.HealthTimeout, "reboot-time": o.rebootTime,
	} {
		if d <= 0 {
			return program.Usage("--%s must be longer than 0, is %s", name, d)
		}
	}

	if t := o.Limits.CrashLoopThreshold; t < 0 || t > 10 {
		return program.Usage("--crash-loop-threshold must be 0 to 10, not %d", t)
	}
	if wrong := validation.IsDNS1123Subdomain(o.Prefix + "0"); len(wrong) > 0 {
		return program.Usage("--name-prefix %q: %s", o.Prefix, strings.Join(wrong, "; "))
	}

	for key, value := range o.Labels {
		if wrong := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); len(wrong) > 0 {
			return program.Usage("--label %s=%s: %s", key, value, strings.Join(wrong, "; "))
		}
	}

	return nil
}

func (o *options) run(ctx context.Context, out io.Writer) (err error) {
	defer must.Catch(&err)

	must.OK(o.check())
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	o.Config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	must.That(err == nil, "read the kubeconfig, see --kubeconfig: %w", err)
	if o.Dir != "" {
		o.Dir = must.Get(filepath.Abs(o.Dir))
	}

	o.Log = slog.New(slog.NewTextHandler(printable.NewWriter(os.Stderr), nil))
	if o.verbose {
		o.AgentLog = o.Log
	} else {
		klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go logs every request that an agent cancels
	}

	f, err := hollow.Start(ctx, o.Options)
	if err != nil {
		if ctx.Err() != nil {
			o.Log.Info("stopped while nodes were joining", "err", err)
			return nil
		}

		return err
	}

	defer func() {
		err = errors.Join(err, f.Stop())
		if o.cleanup {
			o.Log.Info("cleaning up")
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
			defer cancel()
			err = errors.Join(err, f.Cleanup(ctx))
		}
	}()

	return o.play(ctx, f, out)
}

// every is how often the nodes are counted.
const every = 2 * time.Second

// play makes the changes at their times, and prints how many nodes are in each
// state, until ctx ends.
func (o *options) play(ctx context.Context, f *hollow.Fleet, out io.Writer) error {
	changes := slices.SortedStableFunc(slices.Values(o.changes), func(a, b change) int { return cmp.Compare(a.after, b.after) })
	var rebooting sync.WaitGroup
	defer rebooting.Wait()
	begin, before := time.Now(), ""
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if now := summary(f.States()); now != before {
			if _, err := fmt.Fprintf(out, "%7s  %s\n", time.Since(begin).Round(time.Second), now); err != nil {
				return fmt.Errorf("print the states of nodes: %w", err)
			}

			before = now
		}

		var due <-chan time.Time
		if len(changes) > 0 {
			due = time.After(changes[0].after - time.Since(begin))
		}

		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-due:
			c := changes[0]
			changes = changes[1:]
			carryOut := func() {
				if err := o.carryOut(ctx, f, c); err != nil && ctx.Err() == nil {
					o.Log.Error("some nodes did not "+c.kind, "err", err) // the other nodes keep running
				}
			}
			if c.kind == "join" || c.kind == "leave" {
				carryOut()
			} else {
				rebooting.Go(carryOut)
			}
		}
	}
}

func (o *options) carryOut(ctx context.Context, f *hollow.Fleet, c change) error {
	if c.kind == "join" {
		_, err := f.Add(ctx, c.nodes)
		return err
	}

	names := f.Names()
	names = names[:min(c.nodes, len(names))]
	if c.kind == "leave" {
		return f.Remove(ctx, names...)
	}

	return f.Reboot(ctx, c.kind == "reboot", o.rebootTime, names...)
}

// summary is one line about all nodes, the most frequent state first.
func summary(states map[string]int) string {
	sum, parts := 0, []string(nil)
	for _, name := range printable.MostFirst(states) {
		sum += states[name]
		parts = append(parts, fmt.Sprintf("%d %s", states[name], name))
	}

	if sum == 0 {
		return "0 nodes"
	}

	return fmt.Sprintf("%s: %s", printable.Count(sum, "node"), strings.Join(parts, ", "))
}
