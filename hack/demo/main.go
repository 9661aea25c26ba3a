// Command demo demonstrates evenkeel on a real local node: a good change, three bad ones that are rejected before they reach the
// kubelet, one that crash-loops and is rolled back, and a node that keeps its configuration without the API. Then a simulated
// fleet applies a good change, and a rollout of a bad one stops at its first node. All changes are drop-ins over the node's own
// configuration. The exit status is 0 only if every step happened.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	keep := flag.Bool("keep", false, "leave the node running until ctrl-C")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // what client-go says of connections that are closed
	err := demo(ctx, *keep)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "\nInterrupted.")
		os.Exit(130)
	case errors.Is(err, localcluster.ErrNoNode):
		fmt.Println("\nSKIPPED, nothing was shown: a real node cannot run here:", err)
		os.Exit(3)
	case err != nil:
		fmt.Fprintln(os.Stderr, "\nThe demo FAILED:", printable.Text(err.Error()))
		os.Exit(1)
	}
}

// within limits each wait. What takes a second on an idle machine can take minutes on a busy one.
const within = 5 * time.Minute

// show is the demo while it runs.
type show struct {
	*bed.Bed
	agent *bed.Agent
	fleet fleet
	step  int
}

func demo(ctx context.Context, keep bool) (err error) {
	fmt.Println("Starting etcd, kube-apiserver and containerd on loopback, and preparing a node.")
	b, err := bed.Up(ctx, "demo", nil)
	if err != nil {
		return err
	}
	defer func() {
		fmt.Println("\nStopping everything that was started.")
		err = errors.Join(err, b.Down())
	}()
	agent, err := b.Agent("--config-trial-duration=5s", "--crash-loop-threshold=1")
	if err != nil {
		return err
	}
	s := &show{Bed: b, agent: agent}
	defer func() {
		if err != nil && ctx.Err() == nil {
			s.tail()
		}
		err = errors.Join(err, s.fleet.stop(), agent.Stop(within))
	}()
	for _, step := range []func(context.Context) error{
		s.start, s.good, s.typo, s.badValue, s.protected, s.crashLoop, s.noAPI,
		s.gather, s.goodRollout, s.badRollout,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("step %d: %w", s.step, err)
		}
	}
	fmt.Println("\nEvery step happened as described.")
	if !keep {
		fmt.Println("`make demo KEEP=1` leaves the node running.")
		return nil
	}
	return s.keep(ctx)
}

func (s *show) title(format string, args ...any) {
	s.step++
	fmt.Printf("\n%d. %s\n", s.step, fmt.Sprintf(format, args...))
}

func say(format string, args ...any) {
	fmt.Println(printable.Text("   " + fmt.Sprintf(format, args...)))
}

func (s *show) start(ctx context.Context) error {
	s.title("A stock kubelet, started by evenkeel-agent with its existing command line")
	say("$ %s", strings.Join(s.agent.Argv(), " "))
	if err := s.agent.Start(); err != nil {
		return err
	}
	if _, err := s.until(ctx, "True", "LocalInit"); err != nil {
		return err
	}
	return s.capacity(ctx, 110)
}

func (s *show) good(ctx context.Context) error {
	s.title("A good change, merged over the node's own configuration: maxPods 110 -> 120")
	cm, err := s.push(ctx, "more-pods", map[string]any{"maxPods": 120})
	if err != nil {
		return err
	}
	if err := s.capacity(ctx, 120); err != nil {
		return err
	}
	nc, err := s.until(ctx, "True", "AllChecksPassed")
	if err != nil {
		return err
	}
	if t := nc.Status.Trial; t != nil {
		say("on trial: it must be observed healthy for %d s; threshold %d restarts", t.DurationSeconds, t.CrashLoopThreshold)
	}
	if err := bed.Eventually(ctx, within, func(ctx context.Context) error {
		nc, err := s.Get(ctx)
		if err == nil && (nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.UID != cm.UID) {
			err = errors.New("it did not become last-known-good")
		}
		return err
	}); err != nil {
		return err
	}
	say("it passed its trial and is last-known-good now")
	return nil
}

func (s *show) typo(ctx context.Context) error {
	s.title("A typo: maxPodz")
	return s.rejected(ctx, "ValidationFailed", "typo", map[string]any{"maxPodz": 130})
}

func (s *show) badValue(ctx context.Context) error {
	s.title("A value that decodes, but would stop the kubelet at its start: an eviction threshold of banana")
	return s.rejected(ctx, "ValidationFailed", "banana", map[string]any{"evictionHard": map[string]any{"memory.available": "banana"}})
}

func (s *show) protected(ctx context.Context) error {
	s.title("A protected field: no payload may open the kubelet's API to anonymous requests")
	return s.rejected(ctx, "ProtectedFields", "open", map[string]any{"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}}})
}

// rejected pushes a configuration that must never reach the running kubelet.
func (s *show) rejected(ctx context.Context, reason, name string, changes map[string]any) error {
	before, err := s.agent.Children()
	if err != nil {
		return err
	}
	if _, err := s.push(ctx, name, changes); err != nil {
		return err
	}
	nc, err := s.until(ctx, "False", reason)
	if err != nil {
		return err
	}
	say("error: %s", nc.Status.Error)
	after, err := s.agent.Children()
	if err != nil {
		return err
	}
	if fmt.Sprint(before) != fmt.Sprint(after) {
		return fmt.Errorf("the kubelet was process %v and is %v", before, after)
	}
	if err := s.Healthy(ctx); err != nil {
		return err
	}
	say("the kubelet was not touched: process %v, healthy", after)
	return nil
}

func (s *show) crashLoop(ctx context.Context) error {
	s.title("A value that no dry run detects: the kubelet crashes, because more memory is reserved than the node has")
	cm, err := s.push(ctx, "crash", map[string]any{
		"maxPods": 140, "kubeReserved": map[string]string{"memory": "100Ti"},
	})
	if err != nil {
		return err
	}
	nc, err := s.until(ctx, "False", "CrashLooped")
	if err != nil {
		return err
	}
	for _, bad := range nc.Status.BadConfigs {
		if bad.UID == cm.UID {
			say("remembered as bad: %s", bad.Reason)
		}
	}
	if err := s.capacity(ctx, 120); err != nil {
		return err
	}
	say("the node is back on its last-known-good configuration, by itself")
	return nil
}

func (s *show) noAPI(ctx context.Context) error {
	s.title("The API server is stopped, and agent and kubelet are restarted")
	if err := s.agent.Stop(within); err != nil {
		return err
	}
	if err := s.Cluster.StopAPIServer(); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.agent.Start(); err != nil {
		return err
	}
	if err := bed.Eventually(ctx, within, s.Healthy); err != nil {
		return err
	}
	say("a healthy kubelet after %.1f s, with no API; evenkeel-agent status says:", time.Since(begin).Seconds())
	out, code := s.agent.Run(ctx, "", "status", "--dynamic-config-dir="+s.agent.Dir)
	for line := range strings.Lines(out) {
		say("  %s", strings.TrimRight(line, "\n"))
	}
	if code != 0 || !strings.Contains(out, "more-pods") {
		return fmt.Errorf("status did not name the configuration more-pods, exit %d", code)
	}
	if err := s.Cluster.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := s.capacity(ctx, 120); err != nil {
		return err
	}
	_, err := s.until(ctx, "False", "CrashLooped")
	return err
}

// push creates a ConfigMap with changes as a drop-in, and assigns it.
func (s *show) push(ctx context.Context, name string, changes map[string]any) (*corev1.ConfigMap, error) {
	data, err := yaml.Marshal(changes)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		say("| %s", strings.TrimRight(line, "\n"))
	}
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	cm, err := s.Create(ctx, name, map[string]string{"kubelet-dropin": head + string(data)})
	if err != nil {
		return nil, err
	}
	say("NodeConfig %s: spec.configSource.configMapRef = %s/%s (UID: %s)", s.Node.Name(), cm.Namespace, cm.Name, cm.UID)
	return cm, s.Assign(ctx, bed.Ref(cm))
}

// until waits for ConfigOK and shows it.
func (s *show) until(ctx context.Context, status, reason string) (*v1alpha1.NodeConfig, error) {
	var nc *v1alpha1.NodeConfig
	err := bed.Eventually(ctx, within, func(ctx context.Context) (err error) {
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
		say("ConfigOK: %s (%s): %s", c.Status, c.Reason, c.Message)
	}
	return nc, err
}

// capacity waits until the node reports a capacity for pods.
func (s *show) capacity(ctx context.Context, want int64) error {
	err := bed.Eventually(ctx, within, func(ctx context.Context) error {
		node, err := s.Kube.CoreV1().Nodes().Get(ctx, s.Node.Name(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pods := node.Status.Capacity.Pods().Value(); pods != want {
			return fmt.Errorf("the node has a capacity of %d pods, not %d", pods, want)
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("the node is not Ready")
	})
	if err == nil {
		say("the node is Ready, status.capacity.pods is %d", want)
	}
	return err
}

// keep leaves the node to the user until they end it. The simulated fleet and its controller end, so that the user can start their
// own.
func (s *show) keep(ctx context.Context) error {
	if err := errors.Join(s.fleet.stop(), s.fleet.nodes.Cleanup(ctx)); err != nil {
		return err
	}
	s.fleet = fleet{}
	fmt.Printf(`
The simulated nodes and the controller were stopped. The real node keeps running; press ctrl-C to end it. In another shell:

   export KUBECONFIG=%s
   bin/tools/kubectl get nodeconfigs,nodes
   bin/kubectl-evenkeel nodes
   bin/evenkeel-agent status --dynamic-config-dir=%s
   curl http://%s/configz
   less +F %s

A fleet beside it, each in a shell of its own, where FILE contains a KubeletConfiguration with the fields to change:

   bin/evenkeel-controller --leader-elect=false
   bin/evenkeel-hollow --nodes=50 --zones=3 --label=node-restriction.kubernetes.io/pool=workers --trial-duration=5s
   bin/kubectl-evenkeel push workers -f FILE --drop-in --selector node-restriction.kubernetes.io/pool=workers

(The demo's agent runs with a trial of 5 s and a threshold of 1 restart; the defaults are 10 min and 3.)
`, s.Cluster.AdminKubeconfig(), s.agent.Dir, s.agent.Listen, s.agent.Log)
	<-ctx.Done()
	return nil
}

// tail shows the end of the agent's log.
func (s *show) tail() {
	raw, err := os.ReadFile(s.agent.Log)
	if err != nil {
		return
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	fmt.Println("\nThe end of the log of agent and kubelet:")
	for _, line := range lines[max(0, len(lines)-30):] {
		fmt.Println("  ", printable.Line(line))
	}
}
