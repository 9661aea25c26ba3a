package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestASelfHostedKubeletFromBootstrapToReboot(t *testing.T) {
	t.Parallel()
	p := newPivot(t, "pivot", "--config-trial-duration=1s", "--crash-loop-threshold=0")
	t.Cleanup(p.powerOff)
	p.boot()
	p.watchKubelets()
	step := func(name string, do func(*pivot)) {
		t.Helper()
		if t.Failed() {
			return
		}
		begin := time.Now()
		t.Run(name, func(t *testing.T) {
			q := p.in(t)
			do(q)
			p.worker, p.boots, p.m.first = q.worker, q.boots, q.m.first
		})
		t.Logf("%s: %s", name, time.Since(begin).Round(100*time.Millisecond))
	}
	step("the bootstrap kubelet runs the node and keeps it for its successor", bootstrapRuns)
	step("the pod takes the node over and bootstrap waits", podTakesOver)
	p.neverTwoKubelets()
}

func bootstrapRuns(p *pivot) {
	p.isRun(time.Minute, v1alpha1.RunModeBootstrap, "", nil)
	obj, err := p.Kube.CoreV1().Nodes().Get(p.t.Context(), p.Node.Name(), getOptions)
	if err != nil {
		p.t.Fatal(err)
	}
	if obj.Labels["evenkeel.dev/kubelet"] != "self-hosted" {
		p.t.Errorf("it has the labels %v", obj.Labels)
	}
	p.startsWork()
	p.eventually(20*time.Second, "nothing else is scheduled to it", func(ctx context.Context) error {
		pod, err := p.Kube.CoreV1().Pods("default").Get(ctx, "work", getOptions)
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return errors.New("the scheduler has not said so")
	})
}

func podTakesOver(p *pivot) {
	gap := p.gap()
	p.apply("", versionOne)
	uid := p.podReady(time.Minute, versionOne)
	p.isRun(30*time.Second, v1alpha1.RunModeSelfHosted, uid, nil)
	p.t.Logf("bootstrap to self-hosted: the health endpoint was away for %s", gap().Round(time.Millisecond))
	p.bootstrapWaits(20 * time.Second)
	if left, ended := p.bootstrapSaid("another is to run this node"), p.bootstrapSaid("init: the bootstrap agent ended with 0"); left != 1 || ended != 1 {
		p.t.Errorf("bootstrap was asked to leave %d times, and ended with 0 %d times, want 1", left, ended)
	}
	p.patchNode(`{"spec":{"taints":null}}`) // kubectl taint node NODE component-
	p.eventually(30*time.Second, "the workload runs", func(ctx context.Context) (err error) {
		p.worker, err = p.work(ctx)
		return err
	})
	if again := p.podReady(10*time.Second, versionOne); again != uid {
		p.t.Error(fmt.Errorf("the pod is another one: %s, was %s", again, uid))
	}
}
