// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// StartControllers starts kube-controller-manager and kube-scheduler, unless
// they run already, and waits until both are healthy. From then on pods are
// created, bound, and get tokens as in every cluster. Restarts of the API
// server do not stop them. The error has the end of the failed program's log.
func (c *Cluster) StartControllers(ctx context.Context) error {
	if err := c.startController(ctx, "kube-controller-manager",
		// The program's own role is small: each controller uses its own service
		// account.
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.ca.file("sa.key"),
		"--root-ca-file="+c.ca.file("ca.crt"),
		"--kube-api-qps=200", "--kube-api-burst=400",
	); err != nil {
		return err
	}

	return c.startController(ctx, "kube-scheduler")
}

// StopControllers stops both programs, if they run.
func (c *Cluster) StopControllers() {
	c.mu.Lock()
	running := c.controllers
	c.controllers = nil
	c.mu.Unlock()
	for _, p := range running {
		_ = p.Stop(3 * time.Second)
	}
}

// startController starts one of the programs with its default Kubernetes user.
func (c *Cluster) startController(ctx context.Context, name string, flags ...string) error {
	begin := time.Now()
	c.mu.Lock()
	stopped, running := c.stopped, c.controllers[name].running()
	c.mu.Unlock()
	if stopped {
		return errors.New("the cluster is stopped")
	}
	if running {
		return nil
	}
	if _, err := os.Stat(c.tool(name)); err != nil {
		return fmt.Errorf("upstream binary missing, run `make tools`: %w", err)
	}

	kubeconfig, err := c.ClientKubeconfig("system:" + name)
	if err != nil {
		return err
	}

	err = c.tryController(ctx, name, kubeconfig, flags)
	if errors.Is(err, errPortTaken) {
		c.log.Info("a port was taken, trying another")
		err = c.tryController(ctx, name, kubeconfig, flags)
	}

	if err != nil {
		return err
	}

	c.log.Info(name+" is ready", "after", time.Since(begin).Round(time.Millisecond))

	return nil
}

func (c *Cluster) tryController(ctx context.Context, name, kubeconfig string, flags []string) (err error) {
	defer must.Catch(&err)

	port := must.Get(c.ports.take())
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return errors.New("the cluster is stopped")
	}

	p, err := StartProcess(name, c.logFile(name), exec.Command(c.tool(name), append([]string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		// It listens on the API server's address, so it can use the API
		// server's certificate.
		"--tls-cert-file=" + c.ca.file("apiserver.crt"),
		"--tls-private-key-file=" + c.ca.file("apiserver.key"),
		"--leader-elect=false", // there is only one instance, which must start without waiting for a lease
		"--profiling=false",
	}, flags...)...))
	if err != nil {
		c.mu.Unlock()
		return err
	}

	if c.controllers == nil {
		c.controllers = map[string]*Process{}
	}

	c.controllers[name] = p
	c.mu.Unlock()

	config := rest.AnonymousClientConfig(c.admin) // /healthz needs no credentials
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
	client := must.Get(newClient(config))
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = p.Wait(ctx, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/healthz").Do(ctx).Error()
	})
	if err != nil {
		_ = p.Stop(time.Second)
	}

	return err
}
