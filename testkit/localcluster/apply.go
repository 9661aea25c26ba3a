// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/net"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// kindOrder lists the kinds that must be created first, in this order. Objects
// of other kinds follow, in file order.
var kindOrder = []string{
	"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding",
	"RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}

// Apply applies every object in the *.yaml files at and below dir, with
// server-side apply, and waits until its CRDs are served. Kustomizations are
// skipped; every namespace gets its default service account. An admission
// policy may be enforced only some time later: the API does not report that.
func (c *Cluster) Apply(ctx context.Context, dir string) (err error) {
	defer must.Catch(&err)

	config := c.AdminConfig()
	config.WarningHandler = rest.WarningLogger{} // the library's own needs a logger that is set
	api := must.Get(client.New(config, client.Options{Log: klog.Background()}))
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, o := range must.Get(readManifests(dir)) {
		err := retry(ctx, func(ctx context.Context) error {
			got := o.DeepCopy() // applying it again returns its newest status
			err := api.Apply(ctx, client.ApplyConfigurationFromUnstructured(got), client.FieldOwner("evenkeel-localcluster"), client.ForceOwnership)
			if err == nil && o.GetKind() == "CustomResourceDefinition" && !established(got) {
				return errNotEstablished
			}

			return err
		}, isTransient)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if o.GetKind() == "Namespace" {
			must.OK(c.ensureServiceAccount(ctx, o.GetName()))
		}
	}

	return nil
}

var errNotEstablished = errors.New("the CRD is not established")

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && condition["type"] == "Established" && condition["status"] == "True"
	})
}

// isTransient reports whether a retry can succeed when the API server has
// caught up.
func isTransient(err error) bool {
	// Admission that is still starting rejects requests with this message; it
	// has no reason of its own.
	starting := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "not yet ready to handle request")
	return starting || errors.Is(err, errNotEstablished) || meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || net.IsConnectionRefused(err) || net.IsConnectionReset(err)
}

// readManifests returns the objects in the order in which they can be applied.
func readManifests(dir string) (objects []*unstructured.Unstructured, err error) {
	defer must.Catch(&err)

	must.OK(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}

		documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(must.Get(os.ReadFile(path))), 4096)
		for {
			o := &unstructured.Unstructured{}
			switch err := documents.Decode(&o.Object); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("%s: %w", path, err)
			case len(o.Object) > 0 && !strings.HasPrefix(o.GetAPIVersion(), "kustomize.config.k8s.io/"):
				objects = append(objects, o)
			}
		}
	}))
	rank := func(o *unstructured.Unstructured) int {
		if i := slices.Index(kindOrder, o.GetKind()); i >= 0 {
			return i
		}

		return len(kindOrder)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })

	return objects, nil
}

// KubeadmConfig returns a configuration file for Kubeadm: the InitConfiguration
// of a control plane at this address, and the document of a
// ClusterConfiguration. The address need not belong to an interface of this
// machine; kubeadm replaces a loopback address. What kubeadm would otherwise
// find out about this machine, and ask of the Internet if the
// ClusterConfiguration names no kubernetesVersion, is set.
func KubeadmConfig(address, clusterConfiguration string) string {
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint:
  advertiseAddress: %q
nodeRegistration:
  name: control-plane
  criSocket: unix:///run/containerd/containerd.sock
---
%s`, address, clusterConfiguration)
}

// Kubeadm runs commands of the real kubeadm in this cluster, one after the
// other, such as "init phase upload-config all", "init phase addon kube-proxy"
// and "init phase addon coredns", which only upload objects. config is the
// content of their --config file; "" means no file. The error has kubeadm's
// output.
func (c *Cluster) Kubeadm(ctx context.Context, config string, commands ...string) error {
	for _, command := range commands {
		kubeadm := exec.CommandContext(ctx, c.tool("kubeadm"), strings.Fields(command)...)
		kubeadm.Args = append(kubeadm.Args, "--kubeconfig="+c.AdminKubeconfig())
		if config != "" {
			kubeadm.Args = append(kubeadm.Args, "--config=/dev/stdin")
			kubeadm.Stdin = strings.NewReader(config)
		}

		if said, err := kubeadm.CombinedOutput(); err != nil {
			return fmt.Errorf("kubeadm %s: %w: %s", command, err, said)
		}
	}

	return nil
}
