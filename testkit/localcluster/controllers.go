// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"fmt"
	"os/exec"

	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// StartControllers starts kube-controller-manager and kube-scheduler, unless
// they run already, and waits until both are healthy. From then on pods are
// created, bound, and get tokens as in every cluster. Restarts of the API
// server do not stop them. The error has the end of the failed program's log.
func (c *Cluster) StartControllers(ctx context.Context) error {
	if err := c.startController(ctx, &c.manager, "kube-controller-manager",
		// The program's own role is small: each controller uses its own service
		// account.
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.ca.file("sa.key"),
		"--root-ca-file="+c.ca.file("ca.crt"),
		"--kube-api-qps=200", "--kube-api-burst=400",
	); err != nil {
		return err
	}

	return c.startController(ctx, &c.scheduler, "kube-scheduler")
}

// startController starts one of the programs with its default Kubernetes user.
func (c *Cluster) startController(ctx context.Context, s *service, name string, flags ...string) (err error) {
	defer must.Catch(&err)

	if s.pid() != 0 {
		return nil
	}

	kubeconfig := must.Get(c.ClientKubeconfig("system:" + name))
	port := must.Get(c.ports.take())
	cmd := exec.Command(c.tool(name), append([]string{
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
	}, flags...)...)
	config := rest.AnonymousClientConfig(c.admin) // /healthz needs no credentials
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
	healthy := must.Get(answers(config, "/healthz"))

	return s.start(ctx, name, c.logFile(name), cmd, healthy)
}
