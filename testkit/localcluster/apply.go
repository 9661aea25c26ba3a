// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/net"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// kindOrder lists the kinds that must be created first, in this order. Objects of other kinds follow, in file order.
var kindOrder = []string{
	"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding",
	"RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}

// Apply applies every object in the *.yaml files at and below dir, with server-side apply, and waits until its CRDs
// are served. Kustomizations are skipped; every namespace gets its default service account. An admission policy may be enforced
// only some time later: the API does not report that.
func (c *Cluster) Apply(ctx context.Context, dir string) (err error) {
	defer must.Catch(&err)

	objects := must.Get(readManifests(dir))
	disco, err := discovery.NewDiscoveryClientForConfig(c.admin)
	if err != nil {
		return fmt.Errorf("make a discovery client: %w", err)
	}
	client, err := dynamic.NewForConfig(c.admin)
	if err != nil {
		return fmt.Errorf("make a dynamic client: %w", err)
	}
	a := applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, o := range objects {
		if err := a.apply(ctx, o); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if o.GetKind() == "Namespace" {
			must.OK(c.ensureServiceAccount(ctx, o.GetName()))
		}
	}
	c.log.Info("applied manifests", "dir", dir, "objects", len(objects))
	return nil
}

type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

// apply applies one object. It retries while the API server does not know the object's kind or namespace yet.
func (a applier) apply(ctx context.Context, o *unstructured.Unstructured) error {
	try := func(ctx context.Context) error { return a.applyOnce(ctx, o) }
	return retry(ctx, try, func(err error) bool {
		if meta.IsNoMatchError(err) {
			a.mapper.Reset()
			return true
		}
		return isTransient(err)
	})
}

func (a applier) applyOnce(ctx context.Context, o *unstructured.Unstructured) error {
	kind := o.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	resource := dynamic.ResourceInterface(a.client.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = a.client.Resource(mapping.Resource).Namespace(cmp.Or(o.GetNamespace(), "default"))
	}
	options := metav1.ApplyOptions{FieldManager: "evenkeel-localcluster", Force: true}
	applied, err := resource.Apply(ctx, o.GetName(), o, options)
	if err != nil || kind.Kind != "CustomResourceDefinition" {
		return err
	}
	if !established(applied) {
		return errNotEstablished // applying it again returns its newest status
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

// isTransient reports whether a retry can succeed when the API server has caught up.
func isTransient(err error) bool {
	// Admission that is still starting rejects requests with this message; it has no reason of its own.
	starting := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "not yet ready to handle request")
	return starting || errors.Is(err, errNotEstablished) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || net.IsConnectionRefused(err) || net.IsConnectionReset(err)
}

// readManifests returns the objects in the order in which they can be applied.
func readManifests(dir string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, err := decodeManifests(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		objects = append(objects, found...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	rank := func(o *unstructured.Unstructured) int {
		if i := slices.Index(kindOrder, o.GetKind()); i >= 0 {
			return i
		}
		return len(kindOrder)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return objects, nil
}

func decodeManifests(data []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		var content map[string]any
		if err := yaml.Unmarshal(document, &content); err != nil {
			return nil, err
		}
		if len(content) == 0 {
			continue
		}
		o := &unstructured.Unstructured{Object: content}
		if strings.HasPrefix(o.GetAPIVersion(), "kustomize.config.k8s.io/") {
			continue
		}
		if o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" {
			return nil, fmt.Errorf("an object lacks apiVersion, kind or name: %.80q", bytes.TrimSpace(document))
		}
		objects = append(objects, o)
	}
}
