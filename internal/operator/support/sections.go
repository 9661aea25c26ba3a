// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/doctor"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// sections fill a bundle in this order: small and important things first,
// because its size is limited. An error ends the bundle; what could not be read
// is a failure of it.
var sections = []func(context.Context, *bundle) error{
	diagnosis,
	all(kind{v1alpha1.GroupVersion.WithKind("NodeConfigRollout"), "rollouts", maskObject}),
	all(kind{v1alpha1.GroupVersion.WithKind("NodeConfigPreflight"), "preflights", maskObject}),
	lease,
	workloads,
	logs,
	events,
	func(ctx context.Context, b *bundle) error {
		namespace := b.settings.Namespace
		return b.list(ctx, kind{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "namespaces/" + namespace + "/configmaps", maskConfigMap},
			client.InNamespace(namespace))
	},
	all(kind{v1alpha1.GroupVersion.WithKind("NodeConfig"), "nodeconfigs", maskObject}),
	all(kind{corev1.SchemeGroupVersion.WithKind("Node"), "nodes", maskNode}),
}

// all adds all objects of a kind.
func all(k kind) func(context.Context, *bundle) error {
	return func(ctx context.Context, b *bundle) error { return b.list(ctx, k) }
}

const versionsOf = "the versions of this program, the API server, the controller and the agents"

// Versions is the entry version.json.
type Versions struct {
	Client     program.Info   `json:"client"`
	Server     *version.Info  `json:"server,omitempty"`
	Controller string         `json:"controller,omitempty"` // of the holder of the Lease
	Agents     map[string]int `json:"agents,omitempty"`     // nodes by the version of their agent
}

// diagnosis adds the versions, the report of doctor, and the objects of the
// installation that it has read.
func diagnosis(ctx context.Context, b *bundle) error {
	v := Versions{Client: b.options.Program, Agents: map[string]int{}}
	server, err := serverVersion(ctx, b)
	if err != nil {
		if unreachable(err) {
			return err
		}

		b.fail("the version of the API server", err)
	}

	v.Server = server
	facts, err := doctor.Look(ctx, b.reader)
	if err != nil {
		b.fail("the report of doctor, and the objects of the installation", err)
		return b.addJSON("version.json", versionsOf, v)
	}

	b.settings = fleet.SettingsIn(facts.Rollouts)
	v.Controller = facts.Lease.Version
	for i := range facts.Nodes {
		if n := &facts.Nodes[i]; n.Reported {
			v.Agents[n.Agent]++
		}
	}

	if err := b.addJSON("version.json", versionsOf, v); err != nil {
		return err
	}

	report := doctor.NewReport(facts)
	b.contents.Headline = report.Headline
	if err := b.addJSON("doctor.json", "the report of doctor: "+report.Headline, report); err != nil {
		return err
	}

	return installation(b, facts)
}

func serverVersion(ctx context.Context, b *bundle) (*version.Info, error) {
	api, err := discovery.NewDiscoveryClientForConfig(b.config)
	if err != nil {
		return nil, err
	}

	out := &version.Info{}
	text, err := api.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("read the version of the API server: %w", err)
	}

	return out, json.Unmarshal(text, out)
}

// installation adds the CRDs, policies and roles that doctor has read.
func installation(b *bundle, facts *doctor.Facts) error {
	var p page
	denied := map[string]bool{}
	for i := range facts.Parts {
		part := &facts.Parts[i]
		if part.Denied {
			denied[part.Want.GetKind()] = true
			continue
		}

		b.read++
		if part.Got == nil {
			continue
		}
		if err := p.add(maskObject(part.Got.Object)); err != nil {
			return err
		}
	}

	for _, one := range slices.Sorted(maps.Keys(denied)) {
		b.fail(one+"s of the installation", errors.New("you are not allowed to read them"))
	}
	if p.objects == 0 {
		return nil
	}

	what := printable.Count(p.objects, "object") + " of the installation: CRDs, policies, roles"

	return b.add("installation.json", what, p.end())
}

// kind is a kind of objects that a bundle contains.
type kind struct {
	schema.GroupVersionKind
	name string // of the entries, without their number
	mask func(map[string]any) map[string]any
}

// list adds the objects of a kind, page by page, as NAME/1.json, NAME/2.json
// and so on.
func (b *bundle) list(ctx context.Context, k kind, options ...client.ListOption) error {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
	what := k.Kind + "s"
	opts := &client.ListOptions{}
	if opts.ApplyOptions(options); opts.Namespace != "" {
		what += " of namespace " + opts.Namespace
	}

	var p page
	entry, number, added := Entry{Name: k.name + "/"}, 0, 0
	flush := func() error {
		number++
		objects := p.objects
		content := p.end()
		err := b.archive.add(fmt.Sprintf("%s/%d.json", k.name, number), content)
		if err == nil {
			entry.Bytes, added = entry.Bytes+int64(len(content)), added+objects
		}

		return err
	}
	var failed, writing error
	for o, err := range query.Pages[*unstructured.Unstructured](ctx, b.reader, all, options...) {
		if err != nil {
			failed = err
			break
		}

		if err := p.add(k.mask(o.Object)); err != nil {
			return fmt.Errorf("encode %s %s: %w", k.Kind, o.GetName(), err)
		}

		if p.full() {
			if writing = flush(); writing != nil {
				break
			}
		}
	}

	if p.objects > 0 && writing == nil {
		writing = flush()
	}

	switch {
	case writing != nil && !errors.Is(writing, errFull):
		return writing
	case writing != nil, failed != nil && added > 0:
		b.fail(fmt.Sprintf("%s after the first %d", what, added), cmp.Or(writing, failed))
	case meta.IsNoMatchError(failed):
		b.fail(what, errors.New("the API server does not know this kind: evenkeel's CRDs are not installed"))
		return nil
	case failed != nil:
		b.fail(what, failed)
		return nil
	}

	b.read++
	if added > 0 {
		entry.What = printable.Count(added, k.Kind)
		b.contents.Entries = append(b.contents.Entries, entry)
	}

	return nil
}

// lease adds the controller's Lease.
func lease(ctx context.Context, b *bundle) error {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	err := b.reader.Get(ctx, client.ObjectKey{Namespace: b.settings.Namespace, Name: v1alpha1.ControllerLease}, o)
	switch {
	case apierrors.IsNotFound(err):
		b.read++
		return nil
	case err != nil:
		b.fail("the Lease of the controller", err)
		return nil
	}

	b.read++

	return b.addJSON("lease.json", "the Lease of the controller", maskObject(o.Object))
}

// namespaces are those of the controller and of the installer.
func (b *bundle) namespaces() []string {
	return []string{b.settings.Namespace, v1alpha1.InstallNamespace}
}

// workloads adds the Deployments, DaemonSets and Pods of evenkeel's namespaces.
func workloads(ctx context.Context, b *bundle) error {
	for _, namespace := range b.namespaces() {
		for _, k := range []kind{
			{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, "deployments", maskObject},
			{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, "daemonsets", maskObject},
			{corev1.SchemeGroupVersion.WithKind("Pod"), "pods", maskObject},
		} {
			k.name = strings.Join([]string{"namespaces", namespace, k.name}, "/")
			if err := b.list(ctx, k, client.InNamespace(namespace)); err != nil {
				return err
			}
		}
	}

	return nil
}

// eventSources are the programs that write Events about nodes and rollouts, all
// of them in the namespace default.
var eventSources = []string{"evenkeel-agent", "evenkeel-controller"}

// events adds the Events that evenkeel has written, and those of its
// namespaces.
func events(ctx context.Context, b *bundle) error {
	event := corev1.SchemeGroupVersion.WithKind("Event")
	for _, source := range eventSources {
		selector := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("source", source)}
		if err := b.list(ctx, kind{event, "events/" + source, maskObject}, client.InNamespace(corev1.NamespaceDefault), selector); err != nil {
			return err
		}
	}

	for _, namespace := range b.namespaces() {
		if err := b.list(ctx, kind{event, "namespaces/" + namespace + "/events", maskObject}, client.InNamespace(namespace)); err != nil {
			return err
		}
	}

	return nil
}
