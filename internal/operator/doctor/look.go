// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/config"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Look gathers the facts. Objects that the user is not allowed to read become
// facts too. It returns an error if the API server does not answer.
func Look(ctx context.Context, c client.Reader) (*Facts, error) {
	l := &look{Reader: c, f: &Facts{Now: time.Now(), Sources: map[types.NamespacedName]types.UID{}, Read: map[string]bool{},
		Installers: map[string]Installer{}}}
	if err := l.rollouts(ctx); err != nil { // their status names the namespace of the Lease
		return nil, err
	}

	first, err := l.lease(ctx)
	if err != nil {
		return nil, err
	}

	for _, gather := range []func(context.Context) error{l.parts, l.nodes, l.installers, l.sources} {
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

// denied reports whether the user is not allowed to read something, and records
// that.
func (l *look) denied(what string, err error) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}

	l.f.Denied = append(l.f.Denied, Denied{what, err.Error()})

	return true
}

// unserved reports whether the API server does not know a kind.
func unserved(err error) bool {
	var status apierrors.APIStatus
	return meta.IsNoMatchError(err) || errors.As(err, &status) && apierrors.IsNotFound(err) && status.Status().Details != nil &&
		status.Status().Details.Name == ""
}

// Manifests returns the objects of the manifests, each with the part of the
// installation that it belongs to.
func Manifests() ([]Part, error) {
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
	parts, err := Manifests()
	if err != nil {
		return err
	}

	refused := map[string]*Denied{} // by kind: one finding for each kind
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

func (l *look) rollouts(ctx context.Context) error {
	for r, err := range query.Pages[*v1alpha1.NodeConfigRollout](ctx, l, &v1alpha1.NodeConfigRolloutList{}) {
		switch {
		case err == nil:
			l.f.Rollouts = append(l.f.Rollouts, *r)
		case !unserved(err) && !l.denied("NodeConfigRollouts", err):
			return fmt.Errorf("list NodeConfigRollouts: %w", err)
		}
	}

	return nil
}

func (l *look) nodes(ctx context.Context) error {
	configs, pairs := map[string]*v1alpha1.NodeConfig{}, map[string]fleet.Pair{}
	l.f.HasConfig = true
	for nc, err := range query.Configs(ctx, l) {
		switch {
		case err == nil:
			configs[nc.Name] = nc
		case unserved(err) || l.denied("NodeConfigs", err):
			l.f.HasConfig = false
		default:
			return fmt.Errorf("list NodeConfigs: %w", err)
		}
	}

	for n, err := range query.Pages[*corev1.Node](ctx, l, &corev1.NodeList{}) {
		switch {
		case err == nil:
			pairs[n.Name] = fleet.Pair{Node: n, Config: configs[n.Name]}
			delete(configs, n.Name)
		case l.denied("Nodes", err): // assume that each node exists: nothing is known about the Nodes
			for name, nc := range configs {
				pairs[name] = fleet.Pair{Config: nc, NodeUnread: true}
			}

			clear(configs)
		default:
			return fmt.Errorf("list nodes: %w", err)
		}
	}

	l.f.Orphans = slices.SortedFunc(maps.Keys(configs), printable.CompareNatural)
	settings, selections, failed := fleet.SettingsIn(l.f.Rollouts), fleet.SelectionsOf(l.f.Rollouts), describe.FailedIn(l.f.Rollouts)
	for _, name := range slices.SortedFunc(maps.Keys(pairs), printable.CompareNatural) {
		pair, n := pairs[name], Node{Name: name}
		n.Standing = describe.StandingOf(pair, failed(pair), settings.AgentTimeout.Duration, l.f.Now)
		if pair.Config != nil {
			n.setConfig(pair.Config)
		}

		if pair.Node != nil {
			n.setNode(pair.Node)
			n.Standing.Maintained = fleet.MaintenanceOf(pair.Node, settings.Maintenance) != ""
			n.Selected = slices.ContainsFunc(selections, func(s fleet.Selection) bool { return s.Selects(pair.Node) })
		}

		switch { // as a plan of its rollout would say
		case n.Selected && n.Standing.Health == describe.HealthNoAgent && n.Label != v1alpha1.AgentInstall:
			n.Standing.Position = describe.PositionSkipped
		case n.Status == "False" && describe.AboutPods(n.Reason):
			n.Standing.Position = describe.PositionBlocked
		}

		if l.f.HasConfig {
			l.f.Situation.Add(pair, n.Standing, settings.Maintenance, l.f.Now)
		}

		l.f.Nodes = append(l.f.Nodes, n)
	}

	return nil
}

// setNode copies the facts of a Node.
func (n *Node) setNode(node *corev1.Node) {
	n.Ready = fleet.IsReady(node)
	n.Label, n.Because = node.Labels[v1alpha1.LabelAgent], node.Annotations[v1alpha1.AnnotationAgentFailed]
	n.LabelSince = node.CreationTimestamp.Time
	if at := written(node, `"f:`+v1alpha1.LabelAgent+`"`); at != nil {
		n.LabelSince = at.Time
	}
	// The kubelet writes its own time into the condition, and the API server
	// notes when that was written.
	if at, ready := written(node, `{\"type\":\"Ready\"}`, `"f:lastHeartbeatTime"`), fleet.ReadyCondition(node); at != nil && ready != nil {
		n.ClockAhead = ready.LastHeartbeatTime.Sub(at.Time)
	}
}

// written returns when the fields that all these texts are parts of were last
// written, by the API server's clock; nil if it is not known.
func written(node *corev1.Node, fields ...string) (at *metav1.Time) {
	for _, m := range node.ManagedFields {
		lacks := func(f string) bool { return !bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(f)) }
		if m.Time != nil && m.FieldsV1 != nil && !slices.ContainsFunc(fields, lacks) {
			at = m.Time
		}
	}

	return at
}

// installers reads the DaemonSets that labelled nodes need.
func (l *look) installers(ctx context.Context) error {
	for label, name := range map[string]string{v1alpha1.AgentInstall: v1alpha1.InstallerName,
		v1alpha1.AgentUninstall: v1alpha1.UninstallerName} {
		if !slices.ContainsFunc(l.f.Nodes, func(n Node) bool { return n.Label == label }) {
			continue
		}

		set := &appsv1.DaemonSet{}
		err := l.Get(ctx, client.ObjectKey{Namespace: v1alpha1.InstallNamespace, Name: name}, set)
		object := "DaemonSet " + v1alpha1.InstallNamespace + "/" + name
		switch {
		case err == nil:
			l.f.Installers[label] = Installer{Object: object, Found: true,
				Version: describe.ImageVersion(set.Spec.Template.Spec.Containers[0].Image)}
		case apierrors.IsNotFound(err):
			l.f.Installers[label] = Installer{Object: object}
		case !l.denied(object, err):
			return fmt.Errorf("get %s: %w", object, err)
		}
	}

	return nil
}

// setConfig copies the facts of a NodeConfig.
func (n *Node) setConfig(nc *v1alpha1.NodeConfig) {
	st := &nc.Status
	n.Agent = st.AgentVersion
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK); c != nil {
		n.Reported = true
		n.Status, n.Reason, n.Message, n.Since = string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time
	}

	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionKubeletLimited); c != nil && c.Status == metav1.ConditionTrue {
		n.Limited, n.Limits = c.Reason, c.Message
	}

	follows := st.RemoteConfig == "" || st.RemoteConfig == v1alpha1.RemoteConfigNodeConfig
	if follows {
		n.Asked, n.Answered = nc.CreationTimestamp.Time, st.ObservedGeneration == nc.Generation
		for _, m := range nc.ManagedFields {
			if m.Subresource == "" && m.Time != nil && m.Time.After(n.Asked) {
				n.Asked = m.Time.Time
			}
		}
	}

	if t := st.Trial; t != nil && t.StartTime != nil {
		n.TrialStart, n.TrialDuration = t.StartTime.Time, fleet.TrialLength(t)
	}
	if s := nc.Spec.ConfigSource; follows && s != nil {
		n.Source, n.Manual = s.ConfigMapRef.DeepCopy(), s.RolloutRef == nil
	}
}

// sources reads the ConfigMaps of the namespaces that NodeConfigs refer to.
func (l *look) sources(ctx context.Context) error {
	for i := range l.f.Nodes {
		if s := l.f.Nodes[i].Source; s != nil {
			l.f.Read[s.Namespace] = false
		}
	}

	for _, namespace := range slices.Sorted(maps.Keys(l.f.Read)) {
		l.f.Read[namespace] = true
		for cm, err := range query.Metadata(ctx, l, corev1.SchemeGroupVersion.WithKind("ConfigMapList"), client.InNamespace(namespace)) {
			switch {
			case err == nil:
				l.f.Sources[client.ObjectKeyFromObject(cm)] = cm.UID
			case l.denied("ConfigMaps of namespace "+namespace, err):
				l.f.Read[namespace] = false
			default:
				return fmt.Errorf("list the ConfigMaps of namespace %s: %w", namespace, err)
			}
		}
	}

	return nil
}

// lease reads the controller's Lease.
func (l *look) lease(ctx context.Context) (Lease, error) {
	namespace := fleet.SettingsIn(l.f.Rollouts).Namespace
	lease, err := query.ControllerLease(ctx, l, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return Lease{}, nil
	case l.denied("the Lease "+namespace+"/"+v1alpha1.ControllerLease+" of the controller", err):
		return Lease{Denied: true}, nil
	case err != nil:
		return Lease{}, fmt.Errorf("get the controller's lease: %w", err)
	}

	s := &lease.Spec

	return Lease{
		Found: true, Version: lease.Labels[v1alpha1.LabelVersion], Holder: *cmp.Or(s.HolderIdentity, new("")),
		Renewed:  cmp.Or(s.RenewTime, &metav1.MicroTime{}).Time,
		Duration: time.Duration(*cmp.Or(s.LeaseDurationSeconds, new(int32(15)))) * time.Second,
	}, nil
}

// alive determines whether a controller renews the Lease. The clocks can
// differ, so a Lease that looks expired is watched for as long as it lasts.
func (l *look) alive(ctx context.Context, first Lease) error {
	l.f.Lease = first
	if !first.Found || first.Holder == "" {
		return nil
	}

	age := time.Since(first.Renewed)
	if l.f.Lease.Alive = age >= 0 && age < first.Duration; l.f.Lease.Alive {
		return nil
	}

	err := wait.PollUntilContextTimeout(ctx, time.Second, cmp.Or(min(first.Duration, time.Minute), time.Second), true,
		func(context.Context) (bool, error) {
			now, err := l.lease(ctx) // not the context of the poll, so that a read is not cut off
			if err != nil {
				return false, err
			}

			l.f.Lease = now
			l.f.Lease.Alive = now.Found && now.Holder != "" && !now.Renewed.Equal(first.Renewed)

			return l.f.Lease.Alive, nil
		})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil // no controller renewed it
	}

	return err
}
