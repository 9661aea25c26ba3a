// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// startTimeout limits the time until a program is ready, on a machine that is
// busy with other tests.
const startTimeout = 3 * time.Minute

// startControlPlane starts etcd and, unless later is set, the API server, on
// new ports.
func (c *Cluster) startControlPlane(ctx context.Context, later bool) error {
	c.mu.Lock()
	for _, port := range []*int{&c.etcdPort, &c.peerPort, &c.apiPort} {
		var err error
		if *port, err = c.ports.take(); err != nil {
			c.mu.Unlock()
			return err
		}
	}

	c.mu.Unlock()
	var err error
	if c.admin, err = c.makeAdmin(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil || later {
		return err
	}

	return c.StartAPIServer(ctx)
}

func (c *Cluster) startEtcd(ctx context.Context) (err error) {
	defer must.Catch(&err)

	begin := time.Now()
	client := fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort)
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.peerPort)
	p := must.Get(StartProcess("etcd", c.logFile("etcd"), exec.Command(c.tool("etcd"), append([]string{
		"--name=localcluster",
		"--data-dir=" + filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=localcluster=" + peer,
		"--unsafe-no-fsync", // its data does not outlive the machine
		"--log-level=warn",
	}, c.etcdFlags...)...)))
	c.mu.Lock()
	c.etcd = p
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	must.OK(p.Wait(ctx, func(ctx context.Context) error { return Probe(ctx, client+"/health") }))
	c.log.Info("etcd is ready", "after", time.Since(begin).Round(time.Millisecond))

	return nil
}

// StartAPIServer starts the API server on its port, with its certificates and
// the data in etcd, and waits until it is ready. If the API server runs
// already, StartAPIServer only waits.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return errors.New("the cluster is stopped")
	}

	if c.lease != nil {
		c.mu.Unlock()
		return c.lease.call(ctx, "Start", true, nil)
	}

	p := c.apiserver
	if !p.running() {
		var err error
		argv := c.apiServerArgv()
		if p, err = StartProcess("kube-apiserver", c.logFile("kube-apiserver"), exec.Command(argv[0], argv[1:]...)); err != nil {
			c.mu.Unlock()
			return err
		}

		c.apiserver = p
	}

	c.mu.Unlock()

	begin := time.Now()
	client, err := newClient(c.admin)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = p.Wait(ctx, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return errors.Join(err, c.StopAPIServer())
	}

	c.log.Info("kube-apiserver is ready", "after", time.Since(begin).Round(time.Millisecond))

	return nil
}

// APIServerArgv returns the command line of the API server, for callers that do
// not use StartAPIServer. It names only files in Dir, and the program. A
// borrowed control plane has none.
func (c *Cluster) APIServerArgv() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.apiServerArgv()
}

func (c *Cluster) apiServerArgv() []string {
	return append([]string{
		c.server,
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.etcdPort),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.apiPort),
		// A loopback address is not allowed in the Endpoints of the service
		// `kubernetes`, which are not used here.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		"--tls-cert-file=" + c.ca.file("apiserver.crt"),
		"--tls-private-key-file=" + c.ca.file("apiserver.key"),
		"--client-ca-file=" + c.ca.file("ca.crt"),
		"--kubelet-client-certificate=" + c.ca.file("kubelet-client.crt"),
		"--kubelet-client-key=" + c.ca.file("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.ca.file("sa.key"),
		"--service-account-signing-key-file=" + c.ca.file("sa.key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--profiling=false",
	}, c.flags...)
}

// StopAPIServer stops the API server and leaves etcd running. It does nothing
// if the API server does not run.
func (c *Cluster) StopAPIServer() error {
	if c.lease != nil {
		return c.lease.call(context.Background(), "Stop", true, nil)
	}

	c.mu.Lock()
	p := c.apiserver
	c.apiserver = nil
	c.mu.Unlock()
	_ = p.Stop(3 * time.Second) // every write is in etcd already, so a kill loses nothing

	return nil
}

// ServerPIDs returns the process IDs of the API server and etcd, by the names
// of their programs. Both must run.
func (c *Cluster) ServerPIDs() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return map[string]int{"kube-apiserver": c.apiserver.Pid(), "etcd": c.etcd.Pid()}
}

func (c *Cluster) stopControlPlane() {
	if c.lease != nil {
		return // it goes on, for the next borrower
	}

	_ = c.StopAPIServer() // never fails
	c.mu.Lock()
	p := c.etcd
	c.etcd = nil
	c.mu.Unlock()
	_ = p.Stop(3 * time.Second)
}

// ensureServiceAccount creates the default service account, as the controller
// manager does. Pods are not admitted without it.
func (c *Cluster) ensureServiceAccount(ctx context.Context, namespace string) error {
	client, err := newClient(c.admin)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = retry(ctx, func(ctx context.Context) error {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}

		return err
	}, isTransient)
	if err != nil {
		return fmt.Errorf("create the service account of namespace %s: %w", namespace, err)
	}

	return nil
}

func newClient(config *rest.Config) (*kubernetes.Clientset, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}

	return client, nil
}
