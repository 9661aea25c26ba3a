// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/internal/startprobe"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

var (
	goodFlag     = flag.Int("good", 1, "number of random good configurations that must pass a start probe")
	goodSeedFlag = flag.Uint64("good-seed", 1, "seed of the first one")
)

// goodValues are values with which a kubelet starts pods. None touches cgroups of other kubelets of the machine.
var goodValues = map[string]func(*rand.Rand) any{
	"maxPods":                                   func(r *rand.Rand) any { return 20 + r.IntN(230) },
	"podsPerCore":                               func(r *rand.Rand) any { return 20 + r.IntN(100) },
	"podPidsLimit":                              func(r *rand.Rand) any { return 200 + r.IntN(4000) },
	"registryPullQPS":                           func(r *rand.Rand) any { return 1 + r.IntN(50) },
	"registryBurst":                             func(r *rand.Rand) any { return 10 + r.IntN(50) },
	"eventRecordQPS":                            func(r *rand.Rand) any { return 5 + r.IntN(50) },
	"eventBurst":                                func(r *rand.Rand) any { return 10 + r.IntN(100) },
	"kubeAPIQPS":                                func(r *rand.Rand) any { return 10 + r.IntN(90) },
	"kubeAPIBurst":                              func(r *rand.Rand) any { return 20 + r.IntN(180) },
	"syncFrequency":                             goodSeconds(10, 110),
	"fileCheckFrequency":                        goodSeconds(5, 60),
	"nodeStatusReportFrequency":                 goodSeconds(60, 600),
	"nodeStatusUpdateFrequency":                 goodSeconds(5, 30),
	"nodeLeaseDurationSeconds":                  func(r *rand.Rand) any { return 20 + r.IntN(60) },
	"runtimeRequestTimeout":                     goodSeconds(15, 600),
	"streamingConnectionIdleTimeout":            goodSeconds(60, 7200),
	"volumeStatsAggPeriod":                      goodSeconds(10, 120),
	"imageMinimumGCAge":                         goodSeconds(60, 600),
	"imageGCHighThresholdPercent":               func(r *rand.Rand) any { return 90 + r.IntN(9) },
	"imageGCLowThresholdPercent":                func(r *rand.Rand) any { return 50 + r.IntN(30) },
	"containerLogMaxSize":                       func(r *rand.Rand) any { return fmt.Sprintf("%dMi", 1+r.IntN(100)) },
	"containerLogMaxFiles":                      func(r *rand.Rand) any { return 2 + r.IntN(10) },
	"containerLogMonitorInterval":               goodSeconds(5, 60),
	"serializeImagePulls":                       goodBool,
	"cpuCFSQuota":                               goodBool,
	"evictionPressureTransitionPeriod":          goodSeconds(10, 600),
	"evictionMaxPodGracePeriod":                 func(r *rand.Rand) any { return r.IntN(120) },
	"shutdownGracePeriod":                       goodSeconds(30, 120),
	"shutdownGracePeriodCriticalPods":           goodSeconds(1, 30),
	"topologyManagerPolicy":                     goodText("none", "best-effort", "restricted", "single-numa-node"),
	"topologyManagerScope":                      goodText("container", "pod"),
	"configMapAndSecretChangeDetectionStrategy": goodText("Get", "Cache", "Watch"),
	"kubeReserved": func(r *rand.Rand) any {
		return map[string]any{"cpu": fmt.Sprintf("%dm", 10+r.IntN(500)), "memory": fmt.Sprintf("%dMi", 10+r.IntN(500)), "pid": fmt.Sprint(100 + r.IntN(500))}
	},
	"systemReserved": func(r *rand.Rand) any {
		return map[string]any{"cpu": fmt.Sprintf("%dm", 10+r.IntN(300)), "ephemeral-storage": fmt.Sprintf("%dMi", 10+r.IntN(500))}
	},
	"evictionHard": func(r *rand.Rand) any {
		return map[string]any{"memory.available": fmt.Sprintf("%dMi", 20+r.IntN(200)), "nodefs.available": fmt.Sprintf("%dMi", 20+r.IntN(200))}
	},
	"logging": func(r *rand.Rand) any { return map[string]any{"verbosity": r.IntN(5)} },
	"crashLoopBackOff": func(r *rand.Rand) any {
		return map[string]any{"maxContainerRestartPeriod": fmt.Sprintf("%ds", 1+r.IntN(300))}
	},
}

func goodSeconds(from, to int) func(*rand.Rand) any {
	return func(r *rand.Rand) any { return fmt.Sprintf("%ds", from+r.IntN(to-from)) }
}

func goodBool(r *rand.Rand) any { return r.IntN(2) == 0 }

func goodText(all ...string) func(*rand.Rand) any {
	return func(r *rand.Rand) any { return all[r.IntN(len(all))] }
}

// TestGoodConfigurationsPassAStartProbe assigns random good configurations to a node: each must pass its start probe.
func TestGoodConfigurationsPassAStartProbe(t *testing.T) {
	t.Parallel()
	n := newNode(t, "good", "--config-trial-duration=2s")
	n.Up()
	names := slices.Sorted(maps.Keys(goodValues))
	for seed := *goodSeedFlag; seed < *goodSeedFlag+uint64(*goodFlag); seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		fields := map[string]any{}
		for range 2 + r.IntN(8) {
			name := names[r.IntN(len(names))]
			fields[name] = goodValues[name](r)
		}
		if fields["shutdownGracePeriodCriticalPods"] != nil && fields["shutdownGracePeriod"] == nil {
			fields["shutdownGracePeriod"] = "2m" // the kubelet wants it to be longer
		}
		start := time.Now()
		report := n.probes(fmt.Sprint("good-", seed), fields)
		for again := range 3 { // a busy machine is too slow for a dry run
			if report.Result == "" {
				t.Logf("seed %d: %s", seed, report.Message)
				report = n.probes(fmt.Sprintf("good-%d-%d", seed, again), fields)
			}
		}
		t.Logf("seed %d: %s after %s: %v", seed, cmp.Or(report.Result, "refused"), time.Since(start).Round(time.Second), fields)
		assert.That(t, report.Result == rollout.ProbePassed, "seed %d: %+v", seed, report)
	}
}

// probes assigns a drop-in and makes a start probe. Without a result, the message is what the node says about the configuration.
func (n *node) probes(name string, fields map[string]any) (report rollout.ProbeReport) {
	n.t.Helper()
	cm := n.CreateMap(name, map[string]string{payload.KeyKubeletDropin: n.DropIn(fields)})
	n.AssignMap(cm)
	c := assert.Value(client.New(n.Cluster.AdminConfig(), client.Options{}))(n.t)
	p := startprobe.Probe{Namespace: v1alpha1.SystemNamespace, Node: n.Node.Name(), For: "test", Key: name, Image: localcluster.SleepImage}
	defer func() {
		if report.Result != rollout.ProbeFailed { // the agent looks at the pod of such a probe
			assert.OK(n.t, startprobe.Remove(context.WithoutCancel(n.t.Context()), c, p))
		}
	}()
	n.Eventually("the start probe of "+name+" has a result", func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err != nil {
			return err
		}
		s := &nc.Status
		ok := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionConfigOK)
		switch active := s.Active != nil && s.Active.UID == cm.UID; {
		case s.ObservedGeneration == nc.Generation && ok != nil && ok.Status == metav1.ConditionFalse:
			report.Message = ok.Reason + ": " + s.Error
			return nil
		case active && (s.Trial == nil || s.Trial.HealthySeconds > 0):
			p.Config = nc
			report = startprobe.Pass(ctx, c, p, report, time.Now())
		}
		return assert.Unless(report.Result != "", "%+v; ConfigOK %+v", report, ok)
	})
	return report
}
