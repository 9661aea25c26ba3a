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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/rehearsal"
	"github.com/evenkeel/evenkeel/testkit/bed"
)

const (
	hollowNodes = 20
	poolLabel   = "pool"
	pool        = "demo"
)

// fleet is the simulated fleet of the last part.
type fleet struct {
	nodes      *rehearsal.Fleet
	controller *bed.Controller
}

func (f *fleet) stop() error {
	var errs []error
	if f.controller != nil {
		errs = append(errs, f.controller.Stop(within))
	}
	if f.nodes != nil {
		errs = append(errs, f.nodes.Stop())
	}
	return errors.Join(errs...)
}

func (s *show) gather(ctx context.Context) (err error) {
	s.title("A fleet: this node and %d simulated ones, with the real agent in each, and evenkeel-controller", hollowNodes)
	if s.fleet.controller, err = s.Controller(ctx); err != nil {
		return err
	}
	s.fleet.nodes, err = rehearsal.Start(ctx, rehearsal.Options{
		Config: s.Cluster.AdminConfig(), Nodes: hollowNodes, Zones: 3, Labels: map[string]string{poolLabel: pool},
		Limits: trial.Limits{TrialDuration: 2 * time.Second, CrashLoopThreshold: 1},
		// The nodes crash like the real kubelet.
		Faults: []rehearsal.Fault{{Kind: rehearsal.CrashLoop, Payload: "kubeReserved"}},
	})
	if err != nil {
		return err
	}
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, poolLabel, pool)
	if _, err := s.Kube.CoreV1().Nodes().Patch(ctx, s.Node.Name(), types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		return err
	}
	say("NodeConfig %s: spec.configSource is removed, so that a rollout may write it", s.Node.Name())
	if err := s.SetSpec(ctx, v1alpha1.NodeConfigSpec{}); err != nil {
		return err
	}
	_, err = s.until(ctx, "True", "LocalInit")
	return err
}

func (s *show) goodRollout(ctx context.Context) error {
	s.title("A good change for all of them: one node first, then a quarter, then the rest")
	if err := s.pushFile(ctx, "good", "maxPods: 125\n", "--selector="+poolLabel+"="+pool, "--steps=1,25%,100%", "--max-unavailable=50%"); err != nil {
		return err
	}
	if err := s.evenkeel(ctx, 0, "rollout", "status", "demo", "-w", "--timeout=5m"); err != nil {
		return err
	}
	return s.capacity(ctx, 125)
}

func (s *show) badRollout(ctx context.Context) error {
	s.title("The change that crashes kubelets, for all of them")
	const crash = "kubeReserved: {memory: 100Ti}\nmaxPods: 130\n"
	if err := s.pushFile(ctx, "bad", crash); err != nil {
		return err
	}
	if err := s.evenkeel(ctx, 2, "rollout", "status", "demo", "-w", "--timeout=5m"); err != nil {
		return err
	}
	say("exit code 2: the rollout stopped at its first node")
	for _, c := range []struct {
		code int
		args []string
	}{
		{2, []string{"rollout", "status", "demo"}},
		{0, []string{"nodes", "--problems"}},
		{0, []string{"rollout", "undo", "demo"}},
		{0, []string{"rollout", "status", "demo", "-w", "--timeout=5m"}},
		{0, []string{"rollout", "history", "demo"}},
	} {
		if err := s.evenkeel(ctx, c.code, c.args...); err != nil {
			return err
		}
	}
	return s.capacity(ctx, 125)
}

// pushFile pushes fields as a drop-in for the fleet.
func (s *show) pushFile(ctx context.Context, name, fields string, flags ...string) error {
	file := filepath.Join(s.Cluster.Dir(), name+".yaml")
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	if err := os.WriteFile(file, []byte(head+fields), 0o600); err != nil {
		return err
	}
	return s.evenkeel(ctx, 0, append([]string{"push", "demo", "-f", file, "--drop-in", "--yes"}, flags...)...)
}

// evenkeel shows a command and its output. The exit code must be code.
func (s *show) evenkeel(ctx context.Context, code int, args ...string) error {
	say("$ kubectl evenkeel %s", strings.Join(args, " "))
	from, to := io.Pipe()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		for lines := bufio.NewScanner(from); lines.Scan(); {
			fmt.Println(strings.TrimRight("     "+lines.Text(), " "))
		}
	}()
	got, err := s.Evenkeel(ctx, to, args...)
	err = errors.Join(err, to.Close())
	<-shown
	if err == nil && got != code {
		err = fmt.Errorf("kubectl evenkeel %s: exit code %d, not %d", args[0], got, code)
	}
	return err
}
