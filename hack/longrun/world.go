// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// patience limits how long anything may take on a busy machine: the kubelet's return after a kill or a change, a verdict, a
// restart of the API server.
const patience = 4 * time.Minute

const pods = 5

// world is a cluster with one node, a controller, and pods that evenkeel must not disturb.
type world struct {
	*bed.Bed
	controller        *bed.Controller
	controllerMetrics string
	containers        map[string]string // of the pods, when the run began

	mu    sync.Mutex // held while the agent is dead, so that nobody asks for its process
	agent *bed.Agent
	born  time.Time // of the agent's process
}

// recorder is a script in the kubelet's place. It records which configuration the kubelet is started with (not those of dry runs),
// and whether it is on record as bad at that moment. A kubelet with a configuration of crashing exits at once: no configuration is
// known that dry run and guards accept, and that crashes a real kubelet on a node with pods.
const recorder = `#!/bin/sh
real='%s' dir='%s' state='%s' revision=local
for arg; do
	case $arg in
	--version | --exit-on-lock-contention | --allowed-unsafe-sysctls=*evenkeel.dryrun-*) exec "$real" "$@" ;;
	*/rendered/*) revision=${arg#*/rendered/} revision=${revision%%%%/*} ;;
	esac
done
echo "$revision" >>"$dir/starts"
grep -qs "\"$revision\"" "$state"/v*/bad-configs && echo "$revision" >>"$dir/forbidden"
[ $revision != local ] && grep -rqsE 'containerLogMaxFiles"?: ?77' "$state/rendered/$revision" && exit 7
exec "$real" "$@"
`

// crashing are the fields that make the recorder exit.
var crashing = map[string]any{"containerLogMaxFiles": 77}

func up(ctx context.Context) (w *world, err error) {
	b, err := bed.Up(ctx, "soak", nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Down())
		}
	}()
	w = &world{Bed: b}
	if w.agent, err = b.Agent(); err != nil {
		return nil, err
	}
	w.agent.Kubelet = append(w.agent.Kubelet, "--node-labels=pool=soak")
	if err := w.record(); err != nil {
		return nil, err
	}
	if err := w.start(); err != nil {
		return nil, err
	}
	if w.controllerMetrics, err = localcluster.FreeAddress(); err != nil {
		return nil, err
	}
	if err := bed.Eventually(ctx, patience, w.Healthy); err != nil {
		return nil, fmt.Errorf("the kubelet: %w", err)
	}
	w.controller, err = b.Controller(ctx, "--metrics-bind-address="+w.controllerMetrics, "--metrics-secure=false")
	if err != nil {
		return nil, err
	}
	return w, w.runPods(ctx)
}

// record puts the recorder in the kubelet's place.
func (w *world) record() error {
	dir := filepath.Join(w.Node.Dir(), "recorder")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	w.agent.Kubelet[0] = filepath.Join(dir, "kubelet")
	return os.WriteFile(w.agent.Kubelet[0], fmt.Appendf(nil, recorder, w.Node.KubeletPath(), dir, w.agent.Dir), 0o755)
}

// recorded returns the lines of a file of the recorder.
func (w *world) recorded(name string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(w.Node.Dir(), "recorder", name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(raw)), err
}

// down stops everything. If the run failed, it keeps the logs.
func (w *world) down(keep bool) error {
	var errs []error
	if w.controller != nil {
		errs = append(errs, w.controller.Stop(time.Minute))
	}
	errs = append(errs, w.agent.Stop(time.Minute))
	if keep {
		dir, err := os.MkdirTemp("", "longrun-failed-")
		for _, file := range []string{w.agent.Log, filepath.Join(w.Cluster.Dir(), "log")} {
			if err == nil {
				err = copyTo(dir, file)
			}
		}
		if err == nil {
			fmt.Fprintln(os.Stderr, "the logs are in", dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, w.Down())...)
}

func copyTo(dir, file string) (err error) {
	defer must.Catch(&err)

	target := filepath.Join(dir, filepath.Base(file))
	info := must.Get(os.Stat(file))
	if info.IsDir() {
		return os.CopyFS(target, os.DirFS(file))
	}
	raw := must.Get(os.ReadFile(file))
	return os.WriteFile(target, raw, 0o600)
}

func (w *world) start() error {
	w.born = time.Now()
	return w.agent.Start()
}

// restart kills the agent, requires that its kubelet dies with it, and starts the agent again after a while.
func (w *world) restart(ctx context.Context, after time.Duration) (err error) {
	defer must.Catch(&err)

	w.mu.Lock()
	defer w.mu.Unlock()
	kubelet, err := w.agent.KubeletPID()
	if err != nil {
		kubelet = 0 // between two kubelets, which is a moment as good as any
	}
	w.agent.Kill()
	if kubelet != 0 {
		must.OK(bed.Eventually(ctx, patience, func(context.Context) error {
			if err := syscall.Kill(kubelet, 0); !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kubelet %d survived its agent: %w", kubelet, err)
			}
			return nil
		}))
	}
	must.OK(bed.Pause(ctx, after))
	return w.start()
}

// running returns the revision of the kubelet that runs now, "local" for the node's own configuration.
func (w *world) running() (_ string, err error) {
	defer must.Catch(&err)

	w.mu.Lock()
	defer w.mu.Unlock()
	pid := must.Get(w.agent.KubeletPID())
	argv := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)))
	if _, rest, rendered := bytes.Cut(argv, []byte("/rendered/")); rendered {
		revision, _, _ := bytes.Cut(rest, []byte("/"))
		return string(revision), nil
	}
	return "local", nil
}

// runPods starts the pods, and waits until they run.
func (w *world) runPods(ctx context.Context) error {
	for i := range pods {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("steady-%d", i)},
			Spec: corev1.PodSpec{
				NodeName: w.Node.Name(), AutomountServiceAccountToken: new(bool),
				Containers: []corev1.Container{{
					Name: "sleep", Image: localcluster.SleepImage,
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
				}},
			},
		}
		if _, err := w.Kube.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return bed.Eventually(ctx, patience, func(ctx context.Context) (err error) {
		w.containers, err = w.listContainers(ctx)
		return err
	})
}

// listContainers returns the container of each pod. All of them must run, and none may ever have been restarted.
func (w *world) listContainers(ctx context.Context) (_ map[string]string, err error) {
	defer must.Catch(&err)

	list := must.Get(w.Kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{}))
	out := map[string]string{}
	for _, pod := range list.Items {
		for _, c := range pod.Status.ContainerStatuses {
			if pod.Status.Phase == corev1.PodRunning && c.RestartCount == 0 && c.State.Running != nil {
				out[pod.Name] = c.ContainerID
			}
		}
	}
	if len(out) != pods {
		return nil, fmt.Errorf("%d of %s run without a restart: %v", len(out), printable.Count(pods, "pod"), out)
	}
	return out, nil
}
