// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
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

func (c *Cluster) startEtcd(ctx context.Context) (err error) {
	defer must.Catch(&err)

	client := fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort)
	peer := fmt.Sprintf("http://127.0.0.1:%d", must.Get(c.ports.take()))
	cmd := exec.Command(c.tool("etcd"), append([]string{
		"--name=localcluster",
		"--data-dir=" + filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=localcluster=" + peer,
		"--unsafe-no-fsync", // its data does not outlive the machine
		"--log-level=warn",
	}, c.etcdFlags...)...)

	return c.etcd.start(ctx, "etcd", c.logFile("etcd"), cmd, func(ctx context.Context) error { return Probe(ctx, client+"/health") })
}

// StartAPIServer starts the API server on its port, with its certificates and
// the data in etcd, and waits until it is ready. If the API server runs
// already, StartAPIServer only waits.
func (c *Cluster) StartAPIServer(ctx context.Context) (err error) {
	defer must.Catch(&err)

	if c.lease != nil {
		return c.lease.call(ctx, "Start", true, nil)
	}

	ready := must.Get(answers(c.admin, "/readyz"))
	argv := c.APIServerArgv()

	return c.apiserver.start(ctx, "kube-apiserver", c.logFile("kube-apiserver"), exec.Command(argv[0], argv[1:]...), ready)
}

// answers returns a function that returns nil if a server answers with success.
func answers(config *rest.Config, path string) (func(context.Context) error, error) {
	client, err := kubernetes.NewForConfig(config)
	return func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Error()
	}, err
}

// APIServerArgv returns the command line of the API server, for callers that do
// not use StartAPIServer. It names only files in Dir, and the program. A
// borrowed control plane has none.
func (c *Cluster) APIServerArgv() []string {
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

	c.apiserver.stop() // every write is in etcd already, so a kill loses nothing

	return nil
}

// ServerPIDs returns the process IDs of the API server and etcd, by the names
// of their programs. Both must run.
func (c *Cluster) ServerPIDs() map[string]int {
	return map[string]int{"kube-apiserver": c.apiserver.pid(), "etcd": c.etcd.pid()}
}

// ensureServiceAccount creates the default service account, as the controller
// manager does. Pods are not admitted without it.
func (c *Cluster) ensureServiceAccount(ctx context.Context, namespace string) (err error) {
	defer must.Catch(&err)

	accounts := must.Get(kubernetes.NewForConfig(c.admin)).CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = retry(ctx, func(ctx context.Context) error {
		_, err := accounts.Create(ctx, account, metav1.CreateOptions{})
		return err
	}, isTransient)
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}

	return fmt.Errorf("create the service account of namespace %s: %w", namespace, err)
}

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
