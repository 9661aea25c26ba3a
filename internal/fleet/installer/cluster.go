package installer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// ErrApplyFirst means that objects of evenkeel's manifests are missing in the cluster.
var ErrApplyFirst = errors.New("apply evenkeel's manifests first: kubectl apply -k config/default")

// CRDName is the name of the CustomResourceDefinition of NodeConfigs.
const CRDName = "nodeconfigs." + v1alpha1.GroupName

// CheckCRD returns an error if the cluster's CRD of NodeConfigs lacks fields that this program knows: the API server would drop
// them from the agents' reports.
func CheckCRD(ctx context.Context, c client.Client) error {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	err := c.Get(ctx, client.ObjectKey{Name: CRDName}, crd)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the cluster has no CustomResourceDefinition %s, so agents cannot report: %w", CRDName, ErrApplyFirst)
	case err != nil:
		return fmt.Errorf("read the CustomResourceDefinition %s: %w", CRDName, err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return fmt.Errorf("the CustomResourceDefinition %s: %w", CRDName, err)
	}
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if version["name"] != v1alpha1.GroupVersion.Version {
			continue
		}
		known, _, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		if err != nil {
			return fmt.Errorf("the CustomResourceDefinition %s: %w", CRDName, err)
		}
		if lacks := fieldsMissing("", reflect.TypeFor[v1alpha1.NodeConfig](), known); len(lacks) > 0 {
			return fmt.Errorf("the CustomResourceDefinition %s is older than this program, and lacks %s: %w", CRDName, printable.Few(lacks), ErrApplyFirst)
		}
		return nil
	}
	return fmt.Errorf("the CustomResourceDefinition %s has no version %s: %w", CRDName, v1alpha1.GroupVersion.Version, ErrApplyFirst)
}

// fieldsMissing returns the fields of a type of the API that a schema lacks.
func fieldsMissing(path string, t reflect.Type, known map[string]any) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			known, _ = known["items"].(map[string]any)
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[v1alpha1.NodeConfig]().PkgPath() {
		return nil
	}
	properties, _ := known["properties"].(map[string]any)
	var missing []string
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && (options == "inline" || f.Anonymous):
			if f.Type.PkgPath() == t.PkgPath() { // skip kind and apiVersion, which each object has
				missing = append(missing, fieldsMissing(path, f.Type, known)...)
			}
			continue
		case name == "metadata":
			continue
		}
		inner, has := properties[name].(map[string]any)
		at := strings.TrimPrefix(path+"."+name, ".")
		if !has {
			missing = append(missing, at)
			continue
		}
		missing = append(missing, fieldsMissing(at, f.Type, inner)...)
	}
	return missing
}

// DesiredOf reads the operation's DaemonSet. It waits some seconds until kube-controller-manager has observed it.
func DesiredOf(ctx context.Context, c client.Client, m Operation) (Desired, error) {
	deadline := time.Now().Add(query.ObserveTimeout)
	for {
		w, err := Newest(ctx, c, m)
		if err != nil || w.Revision != "" {
			return w, err
		}
		if time.Now().After(deadline) {
			return w, fmt.Errorf("kube-controller-manager has not observed the newest DaemonSet %s/%s: is it running?", v1alpha1.InstallNamespace, m.DaemonSet)
		}
		select {
		case <-ctx.Done():
			return w, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Newest reads the operation's DaemonSet. The revision is empty until kube-controller-manager has observed it.
func Newest(ctx context.Context, c client.Client, m Operation) (Desired, error) {
	d := &appsv1.DaemonSet{}
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.InstallNamespace, Name: m.DaemonSet}, d)
	if apierrors.IsNotFound(err) {
		return Desired{}, fmt.Errorf("there is no DaemonSet %s/%s: %w", v1alpha1.InstallNamespace, m.DaemonSet, ErrApplyFirst)
	}
	if err != nil {
		return Desired{}, fmt.Errorf("read the DaemonSet %s/%s: %w", v1alpha1.InstallNamespace, m.DaemonSet, err)
	}
	container := &d.Spec.Template.Spec.Containers[0]
	w := Desired{Image: container.Image, Version: describe.ImageVersion(container.Image)}
	if probe := container.ReadinessProbe; probe != nil {
		// A restarted kubelet reports the old readiness of a pod until its first probe.
		w.ReadyFor = 2 * time.Duration(probe.PeriodSeconds) * time.Second
	}
	if d.Status.ObservedGeneration < d.Generation {
		return w, nil
	}
	revisions := &appsv1.ControllerRevisionList{}
	err = c.List(ctx, revisions, client.InNamespace(v1alpha1.InstallNamespace), client.MatchingLabels(d.Spec.Selector.MatchLabels))
	if err != nil {
		return w, fmt.Errorf("list the revisions of the DaemonSet %s/%s: %w", v1alpha1.InstallNamespace, m.DaemonSet, err)
	}
	newest := int64(-1)
	for _, r := range revisions.Items {
		owned := len(r.OwnerReferences) > 0 && r.OwnerReferences[0].UID == d.UID
		if owned && r.Revision > newest {
			newest, w.Revision = r.Revision, r.Labels[appsv1.ControllerRevisionHashLabelKey]
		}
	}
	return w, nil
}
