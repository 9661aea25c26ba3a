package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/config"
)

const (
	pageSize = 500
	// LeaseName is the controllers' lease, in evenkeel-system.
	LeaseName = "evenkeel-controller"
	// VersionLabel of the lease is the version of who holds it.
	VersionLabel = "evenkeel.dev/version"
)

// Look gathers the facts. It writes nothing. What the user may not read is a fact as well; an error is that the API server
// does not answer.
func Look(ctx context.Context, c client.Reader) (*Facts, error) {
	l := &look{Reader: c, f: &Facts{Now: time.Now(), Sources: map[types.NamespacedName]types.UID{}, Read: map[string]bool{}}}
	first, err := l.lease(ctx)
	if err != nil {
		return nil, err
	}
	for _, gather := range []func(context.Context) error{l.parts, l.rollouts, l.nodes, l.sources} {
		if err := gather(ctx); err != nil {
			return nil, err
		}
	}
	return l.f, l.alive(ctx, first)
}

type look struct {
	client.Reader
	f *Facts
}

// denied takes note of what the user may not read.
func (l *look) denied(what string, err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	l.f.Denied = append(l.f.Denied, Denied{what, err.Error()})
	return true
}

// unserved tells whether the API server does not know a kind.
func unserved(err error) bool {
	var status apierrors.APIStatus
	return meta.IsNoMatchError(err) || errors.As(err, &status) && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Name == ""
}

// Wanted returns the objects that an installation has, and of what they are part.
func Wanted() ([]Part, error) {
	var out []Part
	err := fs.WalkDir(config.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := config.Files.ReadFile(path)
		if err != nil {
			return err
		}
		part, _, _ := strings.Cut(path, "/")
		if strings.HasSuffix(path, "/people-rbac.yaml") {
			part = "people"
		}
		for documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			object := &unstructured.Unstructured{}
			if err := documents.Decode(object); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if object.GetKind() != "Kustomization" && len(object.Object) > 0 {
				out = append(out, Part{Of: part, Want: object})
			}
		}
	})
	return out, err
}

func (l *look) parts(ctx context.Context) error {
	parts, err := Wanted()
	if err != nil {
		return err
	}
	refused := map[string]*Denied{} // by kind: one line for each is enough
	for i := range parts {
		p := &parts[i]
		got := &unstructured.Unstructured{}
		got.SetGroupVersionKind(p.Want.GroupVersionKind())
		err := l.Get(ctx, client.ObjectKeyFromObject(p.Want), got)
		switch {
		case err == nil:
			p.Got = got
		case unserved(err):
			p.Unserved = true
		case apierrors.IsNotFound(err):
		case apierrors.IsForbidden(err):
			p.Denied = true
			if kind := p.Want.GetKind(); refused[kind] == nil {
				refused[kind] = &Denied{kind + "s of the installation", err.Error()}
			}
		default:
			return fmt.Errorf("get %s: %w", nameOf(p.Want), err)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(refused)) {
		l.f.Denied = append(l.f.Denied, *refused[kind])
	}
	l.f.Parts = parts
	return nil
}

// each calls a function for every object of a list, page by page.
func each[T any, L client.ObjectList](ctx context.Context, c client.Reader, empty func() L, items func(L) []T, options []client.ListOption, do func(*T)) error {
	for token := ""; ; {
		list := empty()
		if err := c.List(ctx, list, append([]client.ListOption{client.Limit(pageSize), client.Continue(token)}, options...)...); err != nil {
			return err
		}
		all := items(list)
		for i := range all {
			do(&all[i])
		}
		if token = list.GetContinue(); token == "" {
			return nil
		}
	}
}

func (l *look) rollouts(ctx context.Context) error {
	err := each(ctx, l, func() *v1alpha1.NodeConfigRolloutList { return &v1alpha1.NodeConfigRolloutList{} },
		func(list *v1alpha1.NodeConfigRolloutList) []v1alpha1.NodeConfigRollout { return list.Items }, nil,
		func(r *v1alpha1.NodeConfigRollout) { l.f.Rollouts = append(l.f.Rollouts, *r) })
	if err == nil || unserved(err) || l.denied("NodeConfigRollouts", err) {
		return nil
	}
	return fmt.Errorf("list NodeConfigRollouts: %w", err)
}

func (l *look) nodes(ctx context.Context) error {
	nodes := map[string]*Node{}
	node := func(name string) *Node {
		if nodes[name] == nil {
			nodes[name] = &Node{Name: name}
		}
		return nodes[name]
	}
	err := each(ctx, l, func() *v1alpha1.NodeConfigList { return &v1alpha1.NodeConfigList{} },
		func(list *v1alpha1.NodeConfigList) []v1alpha1.NodeConfig { return list.Items }, nil,
		func(nc *v1alpha1.NodeConfig) { node(nc.Name).reported(nc) })
	switch {
	case err == nil:
		l.f.HasConfig = true
	case !unserved(err) && !l.denied("NodeConfigs", err):
		return fmt.Errorf("list NodeConfigs: %w", err)
	}
	selects := l.selectors()
	err = each(ctx, l, func() *corev1.NodeList { return &corev1.NodeList{} },
		func(list *corev1.NodeList) []corev1.Node { return list.Items }, nil,
		func(n *corev1.Node) {
			of := node(n.Name)
			of.Exists = true
			if l := n.Labels[v1alpha1.LabelAgent]; l == v1alpha1.AgentInstallFailed || l == v1alpha1.AgentUninstallFailed {
				of.Failed, of.Because = l, n.Annotations[v1alpha1.AnnotationAgentFailed]
			}
			of.Selected = slices.ContainsFunc(selects, func(s labels.Selector) bool { return s.Matches(labels.Set(n.Labels)) })
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady {
					of.Ready = c.Status == corev1.ConditionTrue
				}
			}
		})
	if err != nil && !l.denied("Nodes", err) {
		return fmt.Errorf("list nodes: %w", err)
	}
	if err != nil { // whether they exist, and are Ready, is not known
		for _, n := range nodes {
			n.Exists = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		l.f.Nodes = append(l.f.Nodes, *nodes[name])
	}
	return nil
}

// selectors are those of the rollouts that have a valid one.
func (l *look) selectors() []labels.Selector {
	var out []labels.Selector
	for i := range l.f.Rollouts {
		spec := &l.f.Rollouts[i].Spec
		s, err := metav1.LabelSelectorAsSelector(&spec.NodeSelector)
		if spec.AllNodes {
			s, err = labels.Everything(), nil
		} else if err != nil || s.Empty() {
			continue // it selects nothing, and says so
		}
		out = append(out, s)
	}
	return out
}

// reported takes over what a NodeConfig says.
func (n *Node) reported(nc *v1alpha1.NodeConfig) {
	st := &nc.Status
	n.Config, n.Agent = true, st.AgentVersion
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK); c != nil {
		n.Reported = true
		n.Status, n.Reason, n.Message, n.Since = string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time
	}
	follows := st.RemoteConfig == "" || st.RemoteConfig == v1alpha1.RemoteConfigNodeConfig
	if follows && st.ObservedGeneration != nc.Generation {
		n.Unanswered = nc.CreationTimestamp.Time
		for _, m := range nc.ManagedFields {
			if m.Subresource == "" && m.Time != nil && m.Time.After(n.Unanswered) {
				n.Unanswered = m.Time.Time
			}
		}
	}
	if t := st.Trial; t != nil && t.StartTime != nil {
		n.TrialStart, n.TrialDuration = t.StartTime.Time, time.Duration(t.DurationSeconds)*time.Second
	}
	if s := nc.Spec.ConfigSource; follows && s != nil {
		n.Source = s.ConfigMapRef.DeepCopy()
	}
}

// sources looks for the ConfigMaps that NodeConfigs name.
func (l *look) sources(ctx context.Context) error {
	for i := range l.f.Nodes {
		if s := l.f.Nodes[i].Source; s != nil {
			l.f.Read[s.Namespace] = false
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(l.f.Read)) {
		err := each(ctx, l, func() *metav1.PartialObjectMetadataList {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
			return list
		}, func(list *metav1.PartialObjectMetadataList) []metav1.PartialObjectMetadata { return list.Items },
			[]client.ListOption{client.InNamespace(namespace)},
			func(cm *metav1.PartialObjectMetadata) { l.f.Sources[client.ObjectKeyFromObject(cm)] = cm.UID })
		if err != nil && !l.denied("ConfigMaps of namespace "+namespace, err) {
			return fmt.Errorf("list the ConfigMaps of namespace %s: %w", namespace, err)
		}
		l.f.Read[namespace] = err == nil
	}
	return nil
}

// lease reads the controllers' lease.
func (l *look) lease(ctx context.Context) (Lease, error) {
	lease := &coordinationv1.Lease{}
	err := l.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: LeaseName}, lease)
	switch {
	case apierrors.IsNotFound(err):
		return Lease{}, nil
	case l.denied("the Lease "+v1alpha1.SystemNamespace+"/"+LeaseName+" of the controller", err):
		return Lease{Denied: true}, nil
	case err != nil:
		return Lease{}, fmt.Errorf("get the controller's lease: %w", err)
	}
	out := Lease{Found: true, Version: lease.Labels[VersionLabel], Duration: 15 * time.Second}
	if h := lease.Spec.HolderIdentity; h != nil {
		out.Holder = *h
	}
	if t := lease.Spec.RenewTime; t != nil {
		out.Renewed = t.Time
	}
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		out.Duration = time.Duration(*s) * time.Second
	}
	return out, nil
}

// alive finds out whether somebody renews the lease. The clock here is not the controller's: what looks old is looked at
// for as long as a lease lasts.
func (l *look) alive(ctx context.Context, first Lease) error {
	l.f.Lease = first
	if !first.Found || first.Holder == "" {
		return nil
	}
	age := time.Since(first.Renewed)
	if l.f.Lease.Alive = age >= 0 && age < first.Duration; l.f.Lease.Alive {
		return nil
	}
	err := wait.PollUntilContextTimeout(ctx, time.Second, cmp.Or(min(first.Duration, time.Minute), time.Second), true, func(context.Context) (bool, error) {
		now, err := l.lease(ctx) // a read that is begun is ended
		if err != nil {
			return false, err
		}
		l.f.Lease = now
		l.f.Lease.Alive = now.Found && now.Holder != "" && !now.Renewed.Equal(first.Renewed)
		return l.f.Lease.Alive, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil // nobody does
	}
	return err
}
