package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"k8s.io/client-go/rest"
)

// StartControllers starts kube-controller-manager and kube-scheduler, whose pods are then made, bound, and given a token
// and the authority's certificate as on every cluster, and waits until both are healthy. Those that run are left alone.
// They outlive an API server that is stopped and started. The error carries the end of the log of the one that failed.
func (c *Cluster) StartControllers(ctx context.Context) error {
	if err := c.startController(ctx, "kube-controller-manager",
		// The role of the program itself is small: each controller acts as the service account that it has.
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.ca.file("sa.key"),
		"--root-ca-file="+c.ca.file("ca.crt"),
		"--kube-api-qps=200", "--kube-api-burst=400",
	); err != nil {
		return err
	}
	return c.startController(ctx, "kube-scheduler")
}

// StopControllers stops both. It does nothing if they are stopped.
func (c *Cluster) StopControllers() {
	c.mu.Lock()
	running := c.controllers
	c.controllers = nil
	c.mu.Unlock()
	for _, p := range running {
		p.stop(3 * time.Second)
	}
}

// startController starts one of them under the user that Kubernetes has for it.
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
	start := func() error { return c.tryController(ctx, name, kubeconfig, flags) }
	err = start()
	if errors.Is(err, errPortTaken) {
		c.log.Info("a port was taken, trying another")
		err = start()
	}
	if err != nil {
		return err
	}
	c.log.Info(name+" is ready", "after", time.Since(begin).Round(time.Millisecond))
	return nil
}

func (c *Cluster) tryController(ctx context.Context, name, kubeconfig string, flags []string) error {
	port, err := c.ports.take()
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return errors.New("the cluster is stopped")
	}
	p, err := startProcess(name, c.logFile(name), exec.Command(c.tool(name), append([]string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		// It is on the API server's address, so that it can show the API server's certificate.
		"--tls-cert-file=" + c.ca.file("apiserver.crt"),
		"--tls-private-key-file=" + c.ca.file("apiserver.key"),
		"--leader-elect=false", // nobody else leads, and who stops is back at once
		"--profiling=false",
	}, flags...)...))
	if err != nil {
		c.mu.Unlock()
		return err
	}
	if c.controllers == nil {
		c.controllers = map[string]*process{}
	}
	c.controllers[name] = p
	c.mu.Unlock()

	config := rest.AnonymousClientConfig(c.admin) // health is for everybody
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
	client, err := newClient(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = p.wait(ctx, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/healthz").Do(ctx).Error()
	})
	if err != nil {
		p.stop(time.Second)
	}
	return err
}
