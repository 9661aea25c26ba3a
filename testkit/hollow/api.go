// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/transport"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// Label has the value "true" on every Node that a fleet created. Nodes without
// it are never changed.
const Label = v1alpha1.GroupName + "/hollow"

// maxParallel limits how many nodes join or leave at the same time, and how
// many heartbeats are written at the same time.
const maxParallel = 64

// api holds the clients of the fleet's own user, which also writes what
// kubelets would write, and the configuration of the agents' clients.
type api struct {
	config *rest.Config
	base   http.RoundTripper // of the agents: has credentials, but does not impersonate
	core   *coreclient.CoreV1Client
	leases *coordinationclient.CoordinationV1Client
	slots  chan struct{} // maxParallel ones, for heartbeats
}

func newAPI(config *rest.Config) (_ *api, err error) {
	defer must.Catch(&err)

	agents := rest.CopyConfig(config)
	agents.UserAgent = "evenkeel-agent/hollow"
	agents.DisableCompression = true
	own := rest.CopyConfig(config)
	own.UserAgent = "evenkeel-hollow"
	own.QPS = -1
	own.Timeout = 30 * time.Second
	client := must.Get(rest.HTTPClientFor(own))

	return &api{
		config: agents, base: must.Get(rest.TransportFor(agents)), slots: make(chan struct{}, maxParallel),
		core: must.Get(coreclient.NewForConfigAndClient(own, client)), leases: must.Get(coordinationclient.NewForConfigAndClient(own, client)),
	}, nil
}

// clientFor returns an HTTP client that impersonates a node, over connections
// that all nodes share.
func (a *api) clientFor(node string) *http.Client {
	identity := transport.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}
	return &http.Client{Transport: transport.NewImpersonatingRoundTripper(identity, a.base)}
}

// checkAccess makes an agent's request. If it fails, the error says what to do.
func (a *api) checkAccess(ctx context.Context, node string) error {
	config := rest.CopyConfig(a.config)
	config.QPS = -1
	client, err := coreclient.NewForConfigAndClient(config, a.clientFor(node))
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = client.RESTClient().Get().AbsPath(nodeConfigPath(node)).Do(ctx).Error()
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err) && strings.Contains(err.Error(), node):
		return nil
	case apierrors.IsNotFound(err):
		return errors.New("the API server does not serve NodeConfigs: apply install.yaml first")
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "impersonate"):
		return fmt.Errorf("the kubeconfig's user may not act as nodes: grant it the verb impersonate on users (system:node:<name>) and groups "+
			"(system:nodes, system:authenticated): %w", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("nodes may not read NodeConfigs: apply install.yaml first: %w", err)
	}

	return fmt.Errorf("ask the API server as node %s: %w", node, err)
}

func nodeConfigPath(node string) string {
	return "/apis/" + v1alpha1.GroupVersion.String() + "/nodeconfigs/" + node
}

// listNodes returns the names of all Nodes, and whether each is hollow.
func (a *api) listNodes(ctx context.Context) (map[string]bool, error) {
	hollow := map[string]bool{}
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return a.core.Nodes().List(ctx, o)
	}
	err := pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		n := o.(*corev1.Node)
		hollow[n.Name] = isHollow(n)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}

	return hollow, nil
}

func isHollow(n *corev1.Node) bool { return n.Labels[Label] == "true" }

func errNotHollow(name string) error {
	return fmt.Errorf("node %s exists and is not hollow (it has no label %s=true): choose another name prefix", name, Label)
}

// register creates the Node and its Lease, or adopts an existing hollow Node.
func (a *api) register(ctx context.Context, node *corev1.Node) (adopted bool, err error) {
	defer must.Catch(&err)

	_, nodeErr := a.core.Nodes().Create(ctx, node, metav1.CreateOptions{})
	adopted = apierrors.IsAlreadyExists(nodeErr)
	must.That(nodeErr == nil || adopted, "register Node %s: %w", node.Name, nodeErr)
	if adopted {
		old, err := a.core.Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		must.That(err == nil, "read the existing Node %s: %w", node.Name, err)
		if !isHollow(old) {
			return false, errNotHollow(node.Name)
		}
	}

	now := metav1.NowMicro()
	seconds := int32(40)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: map[string]string{Label: "true"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	_, leaseErr := a.leases.Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{})
	must.That(leaseErr == nil || apierrors.IsAlreadyExists(leaseErr), "create the Lease of Node %s: %w", node.Name, leaseErr)

	return adopted, nil
}

// deregister deletes the Node and its Lease, if they exist. It ends at the
// first error, with package must, like deleteNodeConfig.
func (a *api) deregister(ctx context.Context, node string) {
	err := a.core.Nodes().Delete(ctx, node, metav1.DeleteOptions{})
	must.That(err == nil || apierrors.IsNotFound(err), "delete Node %s: %w", node, err)
	err = a.leases.Leases(corev1.NamespaceNodeLease).Delete(ctx, node, metav1.DeleteOptions{})
	must.That(err == nil || apierrors.IsNotFound(err), "delete the Lease of Node %s: %w", node, err)
}

// deleteNodeConfig deletes the NodeConfig of a node, if it exists.
func (a *api) deleteNodeConfig(ctx context.Context, node string) {
	err := a.core.RESTClient().Delete().AbsPath(nodeConfigPath(node)).Do(ctx).Error()
	must.That(err == nil || apierrors.IsNotFound(err), "delete NodeConfig %s: %w", node, err)
}

// newNode returns the Node that a simulated kubelet registers.
func newNode(name, zone string, size payload.Capacity, labels map[string]string) *corev1.Node {
	now := metav1.Now()
	all := map[string]string{
		corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", corev1.LabelHostname: name,
		corev1.LabelInstanceTypeStable: "hollow", Label: "true",
	}
	if zone != "" {
		all[corev1.LabelTopologyZone] = zone
	}

	maps.Copy(all, labels)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(size.CPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(size.Memory, resource.BinarySI), corev1.ResourcePods: resource.MustParse("110"),
	}
	if size.EphemeralStorage > 0 {
		capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(size.EphemeralStorage, resource.BinarySI)
	}

	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all},
		// Pods would never run here.
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: Label, Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "simulated by evenkeel-hollow",
				LastHeartbeatTime: now, LastTransitionTime: now,
			}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: KubeletVersion, Architecture: "amd64", OperatingSystem: "linux",
				OSImage: "hollow", ContainerRuntimeVersion: "hollow://1", KernelVersion: "hollow",
			},
		},
	}
}
